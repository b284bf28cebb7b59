"""The training loop: it learns, and a run that was killed ends like one that was not."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastdime import toy
from fastdime.data.io import read
from fastdime.errors import InputError
from fastdime.pixels import to_integers
from fastdime.training.denoising import Denoising, UNetShape
from fastdime.training.devices import accelerator_for
from fastdime.training.journal import Journal
from fastdime.training.loop import Trainer
from fastdime.training.order import batch_rows
from fastdime.training.pictures import Pictures, split
from fastdime.training.settings import TrainSettings

SETTINGS = TrainSettings(
    steps=40,
    batch_size=8,
    validate_every=10,
    log_every=1,
    warmup=4,
    learning_rate=2e-3,
    checkpoint_seconds=0.2,
)


def task() -> Denoising:
    drawn = toy.pictures(80)
    pictures = Pictures(to_integers(drawn.x).to(torch.uint8), 8, drawn.ring.float())
    return Denoising(*split(pictures, 0.2, 0), UNetShape(widths=(16, 16), patch=4, groups=4))


def losses(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_it_learns_and_keeps_the_best(tmp_path: Path) -> None:
    trainer = Trainer(task(), SETTINGS, tmp_path)
    end = trainer.run()
    scores = [entry["valid_loss"] for entry in losses(tmp_path) if "valid_loss" in entry]
    assert len(scores) == 4
    assert scores[-1] < 0.95 * scores[0]
    assert end.best == min(scores)
    assert trainer.best is not None


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    Trainer(task(), SETTINGS, tmp_path).run()
    log = (tmp_path / "log.jsonl").read_text()
    assert Trainer(task(), SETTINGS, tmp_path).run().step == 40
    assert (tmp_path / "log.jsonl").read_text() == log


def test_a_run_out_of_time_keeps_what_it_has_and_can_go_on(tmp_path: Path) -> None:
    patient = SETTINGS.model_copy(update={"patience": 1})
    moment = patient.model_copy(update={"hours": 1e-9})
    for _ in range(2):  # the second time there is nothing to do
        trainer = Trainer(task(), moment, tmp_path / "late")
        assert trainer.run().step == trainer.state.best_step == 10  # the first validation
        assert trainer.best is not None
    late = Trainer(task(), patient.model_copy(update={"hours": 1.0}), tmp_path / "late")
    never = Trainer(task(), patient, tmp_path / "never")
    ends = [replace(trainer.run(), seconds=0.0) for trainer in (late, never)]
    assert ends[0] == ends[1]
    assert ends[0].step > 10
    assert losses(tmp_path / "late") == losses(tmp_path / "never")
    assert late.best is not None
    assert never.best is not None
    assert all(torch.equal(late.best[name], never.best[name]) for name in never.best)


def begun(task: Denoising, folder: Path) -> None:
    """Begin a run in a folder, and leave a checkpoint."""
    Trainer(task, SETTINGS, folder)._save()


def test_other_settings_are_refused(tmp_path: Path) -> None:
    begun(task(), tmp_path)
    with pytest.raises(InputError, match=r"settings.learning_rate = 0.5, where the run has 0.002"):
        Trainer(task(), SETTINGS.model_copy(update={"learning_rate": 0.5}), tmp_path)


def test_other_images_are_refused(tmp_path: Path) -> None:
    before = task()
    begun(before, tmp_path)
    for part in ("train", "valid"):
        pictures = getattr(before, part)
        levels, labels = pictures.levels.clone(), 1 - pictures.labels
        levels[3, 0, 5, 5] ^= 1
        for other in (replace(pictures, levels=levels), replace(pictures, labels=labels)):
            with pytest.raises(InputError, match=r"task.data = '\w{16}', where the run has '\w{16}'"):
                Trainer(replace(before, **{part: other}), SETTINGS, tmp_path)
    Trainer(before, SETTINGS, tmp_path)


def test_a_run_that_failed_at_once_does_not_block_its_folder(tmp_path: Path) -> None:
    Trainer(task(), SETTINGS, tmp_path)
    Trainer(task(), SETTINGS.model_copy(update={"learning_rate": 0.5}), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["settings"]["learning_rate"] == 0.5


@pytest.mark.parametrize("kept", ["of something else", "a model"])
def test_what_another_program_left_is_not_overwritten(kept: str, tmp_path: Path) -> None:
    if kept == "a model":
        Trainer(task(), SETTINGS, tmp_path)
        (tmp_path / "denoiser").mkdir()
    else:
        (tmp_path / "config.json").write_text('{"method": "dime"}')
    before = (tmp_path / "config.json").read_text()
    with pytest.raises(InputError, match="expected the settings it was begun with"):
        Trainer(task(), SETTINGS.model_copy(update={"learning_rate": 0.5}), tmp_path)
    assert (tmp_path / "config.json").read_text() == before


def test_killed_and_restarted_it_ends_the_same(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    Trainer(task(), SETTINGS, whole).run()
    for least in (8, 20):
        process = start(broken)
        wait_for(broken / "checkpoint.pt", process, least)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start(broken).wait() == 0
    assert losses(broken) == losses(whole)
    assert events(broken) == events(whole)
    for name, weight in kept(whole).items():
        assert torch.equal(kept(broken)[name], weight), name
    one, other = ({p.name: p.read_bytes() for p in (run / "samples").iterdir()} for run in (whole, broken))
    assert one == other


def kept(folder: Path) -> dict[str, torch.Tensor]:
    best = torch.load(folder / "checkpoint.pt", weights_only=True)["best"]
    assert best
    return best


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read what TensorBoard would draw."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder / "tensorboard"))
    read.Reload()
    return {tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_tensorboard_has_what_the_log_has(tmp_path: Path) -> None:
    Trainer(task(), SETTINGS, tmp_path).run()
    found = events(tmp_path)
    assert found.keys() == {"train/loss", "train/rate", "train/norm", "valid/loss"}
    logged = {entry["step"]: entry["loss"] for entry in losses(tmp_path) if "loss" in entry}
    assert [step for step, _ in found["train/loss"]] == list(range(1, 41))
    for step, value in found["train/loss"]:
        assert value == pytest.approx(logged[step], rel=1e-6)


def test_a_run_from_before_tensorboard_gets_its_curve(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    for step in range(1, 7):
        journal.write(step, {"loss": 1 / step})
    journal.close()
    shutil.rmtree(tmp_path / "tensorboard")
    later = Journal(tmp_path, 4)  # the checkpoint is of update 4
    later.write(5, {"loss": 7.0})
    later.close()
    assert events(tmp_path)["train/loss"] == [
        (step, pytest.approx(value)) for step, value in [(1, 1), (2, 1 / 2), (3, 1 / 3), (4, 1 / 4), (5, 7)]
    ]
    assert [entry["step"] for entry in losses(tmp_path)] == [1, 2, 3, 4, 5]


def test_pictures_on_the_way(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"sample_every": 15})
    Trainer(task(), settings, tmp_path).run()
    assert sorted(path.stem for path in (tmp_path / "samples").iterdir()) == ["0000015", "0000030", "0000040"]
    assert read(tmp_path / "samples" / "0000040.png").x.shape == (1, 6 * 34 + 2, 8 * 34 + 2)


class Exact(torch.nn.Module):
    """The exact denoiser of the toy world, with a weight that tells where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.place = torch.nn.Parameter(torch.zeros(1))
        self.network = toy.denoiser().network

    def forward(self, x_t: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return self.network(x_t, times)


def test_the_picture_shows_images_noise_and_what_is_made_of_it() -> None:
    picture = task().picture(Exact())
    image, noised, denoised, noisier, cleaned, sample = (
        picture[:, 2 + 34 * row : 34 + 34 * row, 2:34] for row in range(6)
    )
    assert torch.equal(image, task().valid.x(torch.tensor([0]))[0])
    assert (denoised - image).abs().mean() < 0.2 * (noised - image).abs().mean()
    assert (cleaned - image).abs().mean() < 0.5 * (noisier - image).abs().mean()
    assert sample.std() < 0.5  # the background is smooth: noise would have about .7 after clipping


def test_a_run_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Fields that came later mean what was done before."""
    begun(task(), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    assert config["task"].pop("data")
    for name in ("optimizer",):
        assert config["settings"].pop(name)
    path.write_text(json.dumps(config))
    Trainer(task(), SETTINGS, tmp_path)
    with pytest.raises(InputError, match=r"settings.optimizer = 'adam', where the run has 'adamw'"):
        Trainer(task(), SETTINGS.model_copy(update={"optimizer": "adam"}), tmp_path)


@pytest.mark.parametrize(
    ("looks", "sentence"),
    [
        ({"log_every": 1000, "validate_every": 1000}, "^loss: expected a finite number, got .* at update 2;"),
        (
            {"validate_every": 1},
            "^validation loss: expected a finite number, got .* at update 1; .*--learning-",
        ),
        ({"sample_every": 1}, "^picture: expected a finite number, got .* at update 1; .*--learning-rate"),
    ],
)
def test_a_loss_that_is_not_finite_ends_it(looks: dict[str, int], sentence: str, tmp_path: Path) -> None:
    fast = {"learning_rate": 1e30, "warmup": 0, "clip": None, "ema": 0.0}
    with pytest.raises(InputError, match=sentence):
        Trainer(task(), SETTINGS.model_copy(update=fast | looks), tmp_path).run()


def test_how_it_goes_is_told(tmp_path: Path) -> None:
    notes: list[str] = []
    done: list[float] = []
    Trainer(task(), SETTINGS, tmp_path).run(lambda step, of: done.append(step / of), notes.append)
    assert done[-1] == 1
    assert notes[0].startswith("loss ")
    assert "best validation" in notes[-1]


@pytest.mark.parametrize(
    ("device", "precision", "sentence"),
    [
        ("cpu", "fp16", "precision: expected no or bf16 on a CPU, got fp16"),
        ("gpu", "no", "--device: expected one of auto, cpu, cuda, mps"),
    ],
)
def test_what_the_machine_has_not(device: str, precision: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        accelerator_for(device, precision)


def test_another_precision_needs_another_process() -> None:
    accelerator_for("cpu", "no")
    with pytest.raises(InputError, match="training: expected the device and precision of the first"):
        accelerator_for("cpu", "bf16")


def start(folder: Path) -> subprocess.Popen[bytes]:
    code = f"from test_loop import *; Trainer(task(), SETTINGS, Path({str(folder)!r})).run()"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    # One thread as in this process: the number of threads decides the last bits.
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code], env=env)


def wait_for(path: Path, process: subprocess.Popen[bytes], least: int) -> None:
    """Wait until the log has some lines and there is a checkpoint."""
    for _ in range(600):
        log = path.with_name("log.jsonl")
        if process.poll() is not None:
            return
        if path.is_file() and log.is_file() and len(log.read_text().splitlines()) >= least:
            return
        time.sleep(0.05)
    raise AssertionError("no checkpoint in 30 s")


def test_patience_stops_it(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"learning_rate": 1e-12, "patience": 1, "ema": 0.0})
    end = Trainer(task(), settings, tmp_path).run()
    assert end.stopped
    assert end.step < 40


def test_every_image_is_seen_once_an_epoch() -> None:
    rows = torch.cat([batch_rows(10, 4, step, seed=3) for step in range(5)])
    assert sorted(rows[:10].tolist()) == list(range(10))
    assert sorted(rows[10:].tolist()) == list(range(10))
    assert rows[:10].tolist() != rows[10:].tolist()
    assert torch.equal(batch_rows(10, 4, 2, 3), batch_rows(10, 4, 2, 3))
