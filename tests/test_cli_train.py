"""The commands of `fastdime train`."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from fastdime.classifiers.load import load_classifier
from fastdime.data.io import write_image
from fastdime.data.table import read_table
from fastdime.diffusion.checkpoints import load_denoiser
from support.commands import complaint, fastdime_command

QUICK = ("--steps", 6, "--batch-size", 4, "--set", "validate_every=3", "--set", "log_every=2")


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "chest"
    done = fastdime_command(
        "data", "phantom", "chest-pacemaker", "--n", 40, "--k", 50, "--size", 32, "--out", folder
    )
    assert done.code == 0
    return folder / "table.csv"


def train(kind: str, data: Path, out: Path, *more: object) -> dict[str, object]:
    done = fastdime_command("train", kind, "--data", data, "--out", out, *QUICK, "--json", *more)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert isinstance(told, dict)
    return told


def test_from_images_to_counterfactuals(phantom: Path, tmp_path: Path) -> None:
    denoiser, guide, task = (tmp_path / name for name in ("denoiser", "guide", "task"))
    told = train("denoiser", phantom, denoiser, "--widths", "16,16", "--layers", 1, "--patch", 4)
    assert told["updates"] == 6
    parts = Counter(read_table(phantom).text("split"))
    assert (told["images"], told["validation_images"]) == (parts["train"], parts["val"])
    assert load_denoiser(denoiser / "denoiser").size == 32
    told = train("guide", phantom, guide, "--where", "task=1")
    assert told["validation"].keys() == {"loss", "accuracy", "auroc"}
    assert 0 <= told["coverage"]["gradient_inside"] <= 1
    assert load_classifier(guide / "classifier").size == 32
    told = train("task", phantom, task, "--architecture", "resnet18")
    assert "coverage" not in told
    models = ("--denoiser", denoiser / "denoiser", "--classifier", guide / "classifier")
    quick = ("--set", "tau=2", "--set", "steps=20", "--set", "scales=8")
    run = fastdime_command(
        "explain", "--data", phantom, "--limit", 2, *models, *quick, "--out", tmp_path / "run"
    )
    assert run.code == 0, run.err


def test_the_model_card(phantom: Path, tmp_path: Path) -> None:
    told = train("task", phantom, tmp_path, "--seed", 3)
    card = json.loads((tmp_path / "card.json").read_text())
    assert card == {name: value for name, value in told.items() if name != "next"}
    assert card["seed"] == 3
    assert card["images_seen"] == 24
    words = card["command"].split()
    assert words[:3] == ["fastdime", "train", "task"]
    page = (tmp_path / "README.md").read_text()
    assert card["command"] in page
    assert "| images seen | 24 |" in page


def test_people_are_told_what_to_type_next(phantom: Path, tmp_path: Path) -> None:
    words = ("--data", phantom, "--out", tmp_path, *QUICK, "--widths", "16,16")
    done = fastdime_command("train", "denoiser", *words)
    assert f"folder                  {tmp_path}/denoiser\n" in done.out
    assert f"next                    fastdime train guide --data {phantom} --out GUIDE\n" in done.out
    again = fastdime_command("train", "denoiser", *words)  # it is finished: the same is said again
    assert again.out == done.out


def test_a_guide_that_steers_is_named_beside_its_denoiser(phantom: Path, tmp_path: Path) -> None:
    train("denoiser", phantom, tmp_path / "first", "--widths", "16,16")
    for source in (tmp_path / "first", tmp_path / "first" / "denoiser"):
        told = train("guide", phantom, tmp_path / f"by-{source.name}", "--steer", source)
        assert f" --denoiser {tmp_path}/first/denoiser --classifier " in told["next"]
    plain = train("guide", phantom, tmp_path / "plain")
    assert " --denoiser DENOISER/denoiser --classifier " in plain["next"]


def test_blank_labels_are_counted(phantom: Path, tmp_path: Path) -> None:
    header, *rows = phantom.read_text().splitlines()
    place = header.split(",").index("shortcut")
    cells = [row.split(",") for row in rows]
    for row in cells[:5]:
        row[place] = ""
    table = phantom.with_name("blank.csv")
    table.write_text("\n".join([header, *map(",".join, cells)]) + "\n")
    told = train("guide", table, tmp_path)
    assert told["left_out_without_label"] == 5
    assert told["left_out_without_split"] == 0


def test_how_images_are_read_is_told_again(phantom: Path, tmp_path: Path) -> None:
    root, small = phantom.parent, ("--widths", "16,16", "--steps", 1)
    reading = ("--root", root, "--size", 16, "--channels", 3, "--convert-channels")
    words = ("--data", phantom, "--out", tmp_path / "one", *reading)
    said = f"--root {root} --size 16 --channels 3 --convert-channels"
    done = fastdime_command("train", "denoiser", *words, "--widths", "48,48", "--steps", 1)
    assert f"fastdime train guide --data {phantom} {said} --out GUIDE\n" in done.out
    words = ("--data", root / "images", "--out", tmp_path / "two", "--size", 16, *small)
    done = fastdime_command("train", "denoiser", *words)
    said = "--data TABLE --size 16 --out GUIDE (a table with a column for the shortcut)"
    assert f"fastdime train guide {said}\n" in done.out, done.err
    words = ("--data", phantom, "--out", tmp_path / "three", "--root", root, "--size", 16, "--steps", 1)
    done = fastdime_command("train", "guide", *words)
    assert f"fastdime explain --data {phantom} --root {root} --size 16 --denoiser" in done.out, done.err


def test_validation_images_of_another_size_are_one_line(tmp_path: Path) -> None:
    for part, size in (("train", 32), ("val", 16)):
        write_image(tmp_path / f"{part}.png", torch.zeros(1, size, size))
    table = tmp_path / "table.csv"
    table.write_text("path,split\ntrain.png,train\nval.png,val\n")
    done = fastdime_command("train", "denoiser", "--data", table, "--out", tmp_path / "out", *QUICK)
    said = complaint(done)
    assert f"{table} line 3 {tmp_path / 'val.png'}: expected (1, 32, 32) with 8 bits" in said
    assert "--size" in said


def test_a_parted_patient_needs_a_word(phantom: Path, tmp_path: Path) -> None:
    header, *rows = phantom.read_text().splitlines()
    table = phantom.with_name("parted.csv")
    table.write_text("\n".join([f"{header},patient", *(f"{row},p{n % 3}" for n, row in enumerate(rows))]))
    done = fastdime_command("train", "task", "--data", table, "--out", tmp_path / "out", *QUICK)
    assert "expected each group in one split" in complaint(done)
    train("task", table, tmp_path / "out", "--group", "none")


def test_other_weights_to_begin_with(phantom: Path, tmp_path: Path) -> None:
    train("guide", phantom, tmp_path / "first")
    told = train("guide", phantom, tmp_path / "next", "--from", tmp_path / "first")
    assert told["started_from"] == str(tmp_path / "first")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["guide", "--shortcut", "pacemaker"], "label column: expected one of"),
        (["guide", "--recipe", "medcal"], "did you mean 'medical'"),
        (["guide", "--architecture", "resnet-18"], "did you mean 'resnet18'"),
        (["guide", "--where", "task=7"], "--where task=7: expected at least one such row"),
        (["guide", "--split", "parts"], "column: expected one of"),
        (["guide", "--from", "nowhere"], "--from nowhere: expected a folder or file with weights"),
        (["guide", "--augment", "eras=1"], "did you mean 'erase'"),
        (["guide", "--augment", "erase=2"], "erase of the augmentation: expected a share from 0 to 1, got 2"),
        (["guide", "--augment", "erase"], "--augment: expected NAME=VALUE, got 'erase'"),
        (["task", "--task", "z"], "expected 0, 1 or blank"),
        (["task", "--set", "stps=4"], "did you mean 'steps'"),
        (["task", "--set", "precision=fp16"], "precision: expected no or bf16 on a CPU"),
        (["task", "--learning-rate", "-1"], "learning_rate: expected greater than 0"),
        (["task", "--batch-size", "65537"], "batch_size: expected less than or equal to 65536"),
        (["task", "--seed", str(2**32)], "seed: expected less than or equal to 4294967295"),
        (["task", "--steps", "3", "--set", "steps=abc"], "--set steps=abc: expected steps to be given once"),
        (["task", "--set", "ema=0", "--set", "ema=0.5"], "--set ema=0.5: expected ema to be given once"),
        (["guide", "--augment", "blur=0", "--augment", "blur=1"], "expected blur to be given once"),
        (["task", "--device", "gpu"], "--device: expected one of auto, cpu, cuda, mps"),
        (["denoiser", "--widths", "8,x"], "--widths: expected whole numbers with commas between"),
        (["denoiser", "--widths", "8,12"], "widths of the denoiser: expected channels in multiples of 8"),
        (["guide", "--size", "2"], "images: expected 8 pixels a side or more, got 2"),
        (["guide", "--augment", "shift=32"], "--augment shift: expected fewer than the 32 pixels of a side"),
        (["denoiser", "--size", "20"], "expected squares whose side is a multiple of 16"),
        (["denoiser", "--channels", "3"], "expected a colour image"),
        (["denoiser", "--valid-share", "0"], "--valid-share: expected a number between 0 and 1"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    phantom: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    kind, *rest = words
    done = fastdime_command("train", kind, "--data", phantom, "--out", tmp_path / "out", *rest)
    assert sentence in complaint(done)
    assert not (tmp_path / "out").exists()


def test_help_needs_no_torch() -> None:
    code = "import sys, fastdime.cli_train; print([n for n in ('torch', 'pydantic') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
