"""The training loop: it learns, and a run that was killed ends like one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fastdime import toy
from fastdime.errors import InputError
from fastdime.pixels import to_integers
from fastdime.training.denoising import Denoising, UNetShape
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
    return Denoising(*split(pictures, 0.2, 0), UNetShape(widths=(8, 16), patch=4, groups=4))


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


def test_other_settings_are_refused(tmp_path: Path) -> None:
    Trainer(task(), SETTINGS, tmp_path)
    with pytest.raises(InputError, match=r"settings.learning_rate = 0.5, where the run has 0.002"):
        Trainer(task(), SETTINGS.model_copy(update={"learning_rate": 0.5}), tmp_path)


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
