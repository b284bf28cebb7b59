import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fastdime
from fastdime import toy
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import METHODS, settings_for
from fastdime.data.io import read, write_mask
from fastdime.data.table import Table, read_table
from fastdime.diffusion.schedule import cosine
from fastdime.errors import InputError
from fastdime.pipeline.explain import explain
from fastdime.pipeline.options import RunOptions
from fastdime.pipeline.summary import summarise
from fastdime.runs import image_path, mask_path, read_run
from support.commands import TOY, complaint, explain_toy, fastdime_command, finish, start_python

SMALL = {"tau": 12, "steps": 50, "iterations": 4, "noise_steps": 3, "inpaint_steps": 3}
FLOATS = ("p_before", "p_after", "change", "changed_area")


def toy_explainer(method: str = "fastdime") -> Explainer:
    fields = METHODS[method].program.model_fields
    changes = {name: value for name, value in SMALL.items() if name in fields}
    return Explainer(toy.denoiser(), toy.classifier(), settings_for(method, **changes))


def levels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image).astype(np.int64)


def bits(path: Path) -> int:
    return path.read_bytes()[24]  # as the header of a PNG says


def deepen(path: Path) -> None:
    """Make a file one of 16 bits, with values that no 8-bit file has."""
    rng = np.random.default_rng(int(path.stem))
    deep = levels(path) * 257 + rng.integers(-100, 100, (toy.SIZE, toy.SIZE))
    Image.fromarray(deep.clip(0, 65535).astype(np.uint16)).save(path)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven pictures; three of them have 16 bits."""
    folder = tmp_path_factory.mktemp("mixed")
    table = toy.write(folder, 11)
    for number in (1, 4, 5):
        deepen(folder / f"{number:04d}.png")
    return table


@pytest.fixture(scope="module")
def run(mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    explain(mixed, toy_explainer(), out, RunOptions(batch_size=5))
    return out


def test_outside_the_mask_the_saved_file_is_the_input_file(mixed: Path, run: Path) -> None:
    inside = 0.0
    for record in read_run(run)[1]:
        before, after = levels(Path(record["path"])), levels(run / "images" / record["image"])
        mask = levels(run / "images" / record["mask"])
        assert set(np.unique(mask)) <= {0, 255}
        assert np.array_equal(before[mask == 0], after[mask == 0])
        inside += (before != after)[mask == 255].mean()
        if bits(run / "images" / record["image"]) == 16:
            assert (after[mask == 255] % 257 != 0).mean() > 0.9  # all levels are used, not those of 8 bits
    assert inside > 3  # of eleven: masks are not all empty
    assert [bits(image_path(run, name)) for name in ("0000", "0001", "0004", "0010")] == [8, 16, 16, 8]


def test_records_say_what_the_saved_files_say(run: Path) -> None:
    classifier = toy.classifier()
    for record in read_run(run)[1]:
        before, after = read(record["path"]).x[None], read(run / "images" / record["image"]).x[None]
        with torch.no_grad():
            old, new = (
                classifier.logits(x, torch.zeros(1, dtype=torch.int64))[0, 0] for x in (before, after)
            )
        sign = 2 * record["target"] - 1
        assert record["predicted"] == int(old > 0)
        assert record["valid"] == (int(new > 0) == record["target"])
        assert record["p_before"] == pytest.approx(torch.sigmoid(sign * old).item(), abs=2e-6)
        assert record["p_after"] == pytest.approx(torch.sigmoid(sign * new).item(), abs=2e-6)
        assert record["change"] == pytest.approx((after - before).abs().mean().item() / 2, abs=2e-6)
        assert record["changed_area"] == pytest.approx((after != before).float().mean().item(), abs=2e-6)
        assert (
            record["denoiser_calls"] == record["gradient_calls"] == 12 * {8: 1, 10: 2, 15: 3}[record["scale"]]
        )


def test_the_summary_is_the_mean_of_the_records(run: Path) -> None:
    summary, records = summarise(run), read_run(run)[1]
    assert (summary.images, summary.errors) == (11, 0)
    assert summary.flip_rate == np.mean([record["valid"] for record in records])
    assert summary.mean_change == pytest.approx(np.mean([record["change"] for record in records]))
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    assert [entry["images"] for entry in timing] == [5, 5, 1]
    assert summary.seconds_per_image == pytest.approx(sum(entry["seconds"] for entry in timing) / 11)


def shuffled(table: Table) -> Table:
    order = list(range(len(table)))
    random.Random(3).shuffle(order)
    return Table(tuple(table.ids[i] for i in order), tuple(table.paths[i] for i in order))


@pytest.mark.parametrize("method", ["fastdime", "gmd-nomask", "ace-l1"])
def test_batch_size_order_and_limit_do_not_matter(mixed: Path, tmp_path: Path, method: str) -> None:
    table, explainer = read_table(mixed), toy_explainer(method)
    runs = {
        "five": (table, RunOptions(batch_size=5)),
        "one": (table, RunOptions(batch_size=1)),
        "order": (shuffled(table), RunOptions(batch_size=4)),
        "limit": (table, RunOptions(batch_size=5, limit=7)),
    }
    for name, (data, options) in runs.items():
        explain(data, explainer, tmp_path / name, options)
    wanted = {record["id"]: record for record in read_run(tmp_path / "five")[1]}
    for name in ("one", "order", "limit"):
        records = read_run(tmp_path / name)[1]
        assert len(records) == (7 if name == "limit" else 11)
        different = pixels = 0
        for record in records:
            ours = levels(tmp_path / name / "images" / record["image"])
            theirs = levels(tmp_path / "five" / "images" / record["image"])
            assert np.abs(ours - theirs).max() <= 1
            different, pixels = different + (ours != theirs).sum(), pixels + ours.size
            assert {**record, **dict.fromkeys(FLOATS)} == {**wanted[record["id"]], **dict.fromkeys(FLOATS)}
            for key in FLOATS[:3]:
                assert record[key] == pytest.approx(wanted[record["id"]][key], abs=1e-4)
        assert different < 0.005 * pixels


@pytest.mark.parametrize("method", ["fastdime", "fastdime-nomask", "fastdime-2", "gmd", "maskdime", "ace-l1"])
def test_regions(tmp_path: Path, method: str) -> None:
    table = toy.write(tmp_path / "data", 4)
    left = torch.zeros(1, toy.SIZE, toy.SIZE, dtype=torch.bool)
    left[..., : toy.SIZE // 2] = True
    top = left.transpose(1, 2)
    write_mask(tmp_path / "data" / "left.png", left)
    write_mask(tmp_path / "data" / "top.png", top)
    lines = table.read_text().splitlines()
    cells = ["where", "left.png", "top.png", "left.png", "top.png"]
    table.write_text("\n".join(f"{line},{cell}" for line, cell in zip(lines, cells, strict=True)) + "\n")
    files = [str(tmp_path / "data" / name) for name in ("left.png", "top.png")]
    for name, options, allowed in [
        ("allow", RunOptions(allow=files[0]), [left] * 4),
        ("forbid", RunOptions(forbid=files[0]), [~left] * 4),
        ("both", RunOptions(allow=files[0], forbid=files[1]), [left & ~top] * 4),
        ("column", RunOptions(allow="where"), [left, top, left, top]),
    ]:
        explain(table, toy_explainer(method), tmp_path / name, options)
        changed = 0
        for record, region in zip(read_run(tmp_path / name)[1], allowed, strict=True):
            different = levels(Path(record["path"])) != levels(tmp_path / name / "images" / record["image"])
            mask = levels(mask_path(tmp_path / name, record["id"])) > 0
            assert not different[~region[0].numpy()].any()
            assert not mask[~region[0].numpy()].any()
            changed += different.sum()
        assert changed > 0


def test_a_region_without_any_pixel_changes_nothing(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 2)
    write_mask(tmp_path / "none.png", torch.zeros(1, toy.SIZE, toy.SIZE, dtype=torch.bool))
    assert explain_toy(table, tmp_path / "run", "--allow", tmp_path / "none.png").code == 0
    for record in read_run(tmp_path / "run")[1]:
        assert not record["valid"]
        assert (record["change"], record["changed_area"]) == (0, 0)


def test_progress_rises_and_starts_where_a_run_goes_on(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 6)
    seen: list[tuple[float, int]] = []
    options = RunOptions(batch_size=2)

    def stop(done: float, of: int) -> None:
        seen.append((done, of))
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain(table, toy_explainer(), tmp_path / "run", options, progress=stop)
    assert (seen[0], seen[-1]) == ((0, 6), (4, 6))
    again: list[float] = []
    explain(table, toy_explainer(), tmp_path / "run", options, progress=lambda done, of: again.append(done))
    assert (again[0], again[-1]) == (4, 6)
    assert again == sorted(again)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_what_a_run_writes_down(run: Path) -> None:
    config = read_run(run)[0]
    assert config["kind"] == "explain"
    assert config["versions"]["fastdime"] == fastdime.__version__
    assert config["settings"]["tau"] == 12
    assert config["batch_size"] == 5
    assert config["data"]["images"] == 11
    assert (config["denoiser"]["source"], config["classifier"]["source"]) == ("ExactNoise", "RingClassifier")
    assert config["denoiser"]["weights"] != config["classifier"]["weights"]
    assert (config["denoiser"]["size"], config["classifier"]["kind"]) == (toy.SIZE, "binary")


def test_models_that_are_read_in_another_way_are_other_settings(mixed: Path, tmp_path: Path) -> None:
    table = read_table(mixed).head(1)
    explain(table, toy_explainer(), tmp_path / "run")
    other = fastdime.ImageClassifier(toy.RingClassifier().eval(), low=0.0)
    with pytest.raises(InputError, match=r"classifier\.low: the run has -1\.0, you ask for 0\.0"):
        explain(table, replace(toy_explainer(), classifier=other), tmp_path / "run")
    another = replace(toy.denoiser(), schedule=cosine(1000))
    with pytest.raises(InputError, match=r"denoiser\.betas: the run has"):
        explain(table, replace(toy_explainer(), denoiser=another), tmp_path / "run")


def test_a_seed_makes_another_run(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 1)
    pictures = []
    for seed in (0, 1, 0):
        out = tmp_path / f"run{len(pictures)}"
        assert explain_toy(table, out, "--seed", seed).code == 0
        pictures.append(image_path(out, "0000").read_bytes())
    assert pictures[0] == pictures[2] != pictures[1]


def test_two_commands_do_not_share_a_folder(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 2)

    def meddle(done: float, of: int) -> None:
        assert "another process is writing" in complaint(explain_toy(table, tmp_path / "run"))

    explain(table, toy_explainer(), tmp_path / "run", RunOptions(batch_size=2), progress=meddle)


MEMORY = """
import resource, sys
import torch
from pathlib import Path
from fastdime import Explainer, RunOptions, Table, as_denoiser, explain, settings_for

class Dark:
    def logits(self, x, time):
        return 20 * x.mean((1, 2, 3))[:, None]

torch.set_num_threads(1)
many, path, out = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
table = Table(tuple(str(i) for i in range(many)), (path,) * many)
settings = settings_for("fastdime-nomask", tau=1, scales=[8.0])
peaks = []

def peak(done, of):
    if done == int(done):
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

explainer = Explainer(as_denoiser(lambda x, t: x * 0.1), Dark(), settings)
explain(table, explainer, out, RunOptions(batch_size=50), progress=peak)
print(peaks[len(peaks) // 4], peaks[-1])
"""


def test_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)).save(
        tmp_path / "a.png"
    )
    many = 1000
    done = finish(start_python("-c", MEMORY, many, tmp_path / "a.png", tmp_path / "run"))
    assert done.code == 0, done.err
    early, late = map(float, done.out.split())
    held = many * 64 * 64 * 4 / 2**20  # what the inputs alone would take
    assert late - early < 0.4 * held, (early, late)


def test_other_images_of_the_same_names_are_another_run(tmp_path: Path) -> None:
    one, other = toy.write(tmp_path / "one", 2), toy.write(tmp_path / "other", 2, seed=1)
    assert explain_toy(one, tmp_path / "run").code == 0
    assert "data.files" in complaint(explain_toy(other, tmp_path / "run"))


def test_an_image_that_runs_away_is_an_error_record(tmp_path: Path) -> None:
    done = explain_toy(toy.write(tmp_path / "data", 3), tmp_path / "run", "--set", "scales=1e30")
    assert done.code == 3
    _, records = read_run(tmp_path / "run")
    assert all("numbers without bound" in record["error"] for record in records)
    assert not list((tmp_path / "run" / "images").iterdir())


@pytest.mark.parametrize("method", ["fastdime", "dime", "maskdime", "ace-l1"])
def test_regions_are_kept_bit_for_bit_by_the_published_presets(tmp_path: Path, method: str) -> None:
    table = toy.write(tmp_path / "data", 3)
    mask = torch.zeros(1, toy.SIZE, toy.SIZE, dtype=torch.bool)
    mask[:, :, :12] = True
    write_mask(tmp_path / "mask.png", mask)
    options = ["--method", method, "--preset", "celeba", "--allow", tmp_path / "mask.png"]
    if method != "ace-l1":
        options += ["--set", "perceptual=0"]
    done = fastdime_command(
        "explain", *TOY, *options, *_few(method), "--data", table, "--out", tmp_path / "run"
    )
    assert done.code == 0, done.err
    for record in read_run(tmp_path / "run")[1]:
        before, after = levels(Path(record["path"])), levels(image_path(tmp_path / "run", record["id"]))
        assert np.array_equal(before[:, 12:], after[:, 12:])


def _few(method: str) -> list[str]:
    known = METHODS[method].program.model_fields
    return [word for name, value in SMALL.items() if name in known for word in ("--set", f"{name}={value}")]
