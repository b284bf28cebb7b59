"""The commands of `fastdime data`."""

from pathlib import Path

import pytest
from PIL import Image

from fastdime.data.table import read_table
from support.commands import complaint, fastdime_command


def test_a_phantom_and_its_picture(tmp_path: Path) -> None:
    made = fastdime_command(
        "data",
        "phantom",
        "skin-ruler",
        "--n",
        "4",
        "--k",
        "75",
        "--out",
        tmp_path / "set",
        "--dial",
        "noise=0",
    )
    assert made.code == 0
    table = read_table(made.out.strip())
    assert len(table) == 4
    assert {"task", "shortcut", "placebo", "z"} <= set(table.labels)
    shown = fastdime_command("data", "show", tmp_path / "set", "--out", tmp_path / "set.png", "--limit", "2")
    assert shown.code == 0
    with Image.open(tmp_path / "set.png") as sheet:
        assert sheet.width > 300


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["chest"], "did you mean 'chest-drain'"),
        (["chest-drain", "--k", "130"], "k: expected a percentage"),
        (["chest-drain", "--dial", "contrst=1"], "did you mean 'contrast'"),
        (["chest-drain", "--dial", "contrast=loud"], "dials: contrast: expected a valid number"),
        (["chest-drain", "--n", "0"], "n: expected a whole number of images"),
        (["chest-drain", "--size", "20"], "size: expected a whole number from 32"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(tmp_path: Path, words: list[str], sentence: str) -> None:
    assert sentence in complaint(fastdime_command("data", "phantom", *words, "--out", tmp_path / "set"))
    assert not (tmp_path / "set").exists()


def test_show_needs_a_phantom(tmp_path: Path) -> None:
    complaint(fastdime_command("data", "show", tmp_path, "--out", tmp_path / "x.png"))
