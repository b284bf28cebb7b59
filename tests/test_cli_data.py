"""The commands of `fastdime data`."""

import json
from pathlib import Path

import pytest
from PIL import Image

from fastdime import toy
from fastdime.data.table import read_table
from support.commands import complaint, explain_toy, fastdime_command


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
        (["chest-drain", "--dial", "noise=0", "--dial", "noise=1"], "--dial: expected each name once"),
        (["chest-drain", "--split", "foo=1"], "splits: expected one of train, val, test, got 'foo'"),
        (
            ["chest-drain", "--split", "val=1", "--split", "val=1"],
            "--split: expected each name once, got 'val'",
        ),
        (["chest-drain", "--n", "0"], "n: expected a whole number of images"),
        (["chest-drain", "--size", "20"], "size: expected a whole number from 32"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(tmp_path: Path, words: list[str], sentence: str) -> None:
    assert sentence in complaint(fastdime_command("data", "phantom", *words, "--out", tmp_path / "set"))
    assert not (tmp_path / "set").exists()


def test_show_needs_a_phantom(tmp_path: Path) -> None:
    complaint(fastdime_command("data", "show", tmp_path, "--out", tmp_path / "x.png"))


def skin(folder: Path) -> Path:
    """A small ISIC tree; the annotations name an image that is not there."""
    images = folder / "ISIC2018_Task3_Training_Input"
    images.mkdir(parents=True)
    lines = ["img_name,Mal,Ruler,split", "ISIC_0000009.jpg,1.0,1.0,train"]
    for number in range(6):
        Image.new("RGB", (60, 45), (200, 150, 20 * number)).save(images / f"ISIC_{number:07d}.jpg")
        lines.append(
            f"ISIC_{number:07d}.jpg,{number % 2}.0,{number % 3 // 2}.0,{'test' if number > 3 else 'train'}"
        )
    (folder / "isic_ruler_meta.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_from_a_published_data_set_to_images_of_one_size(tmp_path: Path) -> None:
    root = skin(tmp_path / "isic")
    made = fastdime_command("data", "table", "isic", root, "--annotations", root / "isic_ruler_meta.csv")
    assert (made.code, made.out) == (0, f"{root}/fastdime.csv\n")
    assert made.err == (
        "6 images in the table; left out: 1 row without a file (ISIC_0000009.jpg), 0 files without a row\n"
    )
    told = fastdime_command("data", "inspect", root / "fastdime.csv", "--check", "--json")
    assert told.code == 0
    counts = {
        (row["split"], row["task"], row["shortcut"]): row["images"] for row in json.loads(told.out)["counts"]
    }
    assert counts == {
        ("train", 0, 0): 1,
        ("train", 1, 0): 2,
        ("train", 0, 1): 1,
        ("test", 0, 0): 1,
        ("test", 1, 1): 1,
    }
    shown = fastdime_command("data", "inspect", root / "fastdime.csv", "--task", "Mal", "--shortcut", "Ruler")
    assert "45x60, 3 channel(s), 8 bits: 6 of 6 opened" in shown.out
    done = fastdime_command(
        "data",
        "prepare",
        root / "fastdime.csv",
        "--like",
        "isic",
        "--size",
        "32",
        "--out",
        tmp_path / "small",
    )
    assert (done.code, done.out) == (0, f"{tmp_path}/small/table.csv\n")
    ready = read_table(tmp_path / "small/table.csv")
    with Image.open(ready.paths[0]) as image:
        assert (image.size, image.mode) == ((32, 32), "RGB")
    assert ready.labels["shortcut"] == (0, 0, 1, 0, 0, 1)


def test_a_table_elsewhere_needs_the_root(tmp_path: Path) -> None:
    root = skin(tmp_path / "isic")
    words = ["data", "table", "own", root, "--out", tmp_path / "t.csv"]
    made = fastdime_command(*words)
    assert (made.code, made.out) == (0, f"{tmp_path}/t.csv\n")
    assert f"use it with --root {root}" in made.err
    told = fastdime_command("data", "inspect", tmp_path / "t.csv", "--root", root, "--json")
    assert (told.code, json.loads(told.out)["images"]) == (0, 6)
    lost = fastdime_command("data", "inspect", tmp_path / "t.csv", "--json")
    assert (lost.code, len(json.loads(lost.out)["files"]["unreadable"])) == (3, 6)


def test_counterfactuals_of_a_table_elsewhere(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "toy", 2).rename(tmp_path / "t.csv")
    done = explain_toy(table, tmp_path / "run", "--root", tmp_path / "toy", "--json")
    assert (done.code, json.loads(done.out)["images"]) == (0, 2), done.err
    table.write_text(f"path\n{tmp_path}/elsewhere/a.png\n")
    sentence = complaint(explain_toy(table, tmp_path / "other", "--root", tmp_path / "toy"))
    assert f"t.csv line 2: expected an image below {tmp_path}/toy, got" in sentence
    assert "--root" in sentence


def test_own_labels_and_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no image")
    Image.new("L", (16, 16)).save(tmp_path / "b.png")
    (tmp_path / "labels.csv").write_text("file,name,who,y,s\na.png,A,1,0,1\nb.png,B,2,1,0\n")
    made = fastdime_command(
        *("data", "table", "own", tmp_path, "--annotations", tmp_path / "labels.csv"),
        *("--path-column", "file", "--id-column", "name", "--group", "who", "--task", "y", "--shortcut", "s"),
    )
    assert made.code == 0
    assert (tmp_path / "fastdime.csv").read_text() == (
        "id,path,task,shortcut,y,s,who,patient\nA,a.png,0,1,0,1,1,1\nB,b.png,1,0,1,0,2,2\n"
    )
    told = fastdime_command("data", "inspect", tmp_path / "fastdime.csv")
    assert told.code == 3
    assert "warning: images that cannot be read: 1 of 2 opened" in told.out
    done = fastdime_command(
        "data", "prepare", tmp_path / "fastdime.csv", "--size", "8", "--out", tmp_path / "out"
    )
    assert done.code == 3
    assert "images that could not be used: 1; the first: " in done.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["table", "isik", "."], "did you mean 'isic'"),
        (["table", "isic", "nowhere"], "nowhere: expected a folder with images, got no such folder"),
        (
            ["table", "isic", "."],
            "expected a file with labels, got none; give it with --annotations isic_ruler",
        ),
        (["inspect", "nowhere.csv"], "nowhere.csv: expected a table, a folder or an image, got no such file"),
        (["prepare", ".", "--out", "x"], "form of the images: expected --size or --like, got neither"),
        (
            ["prepare", ".", "--out", "x", "--like", "own"],
            "--like: expected one of celeba, chexpert, nih, isic, got 'own'",
        ),
        (["prepare", ".", "--out", "x", "--like", "isik"], "did you mean 'isic'"),
        (["prepare", ".", "--out", "x", "--size", "16", "--fit", "pad"], "expected 'crop' or 'stretch'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in complaint(fastdime_command("data", *words))
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "toy", 2)
    before = table.read_bytes()
    for words in (
        ["pseudo-label", table, "--column", "ring", "--out", tmp_path / "toy" / ".." / "toy" / "table.csv"],
        ["table", "own", tmp_path / "toy", "--annotations", table, "--out", table],
    ):
        assert "expected another file than the one that is read" in complaint(
            fastdime_command("data", *words)
        )
    again = fastdime_command("data", "prepare", table, "--size", "16", "--out", table.parent)
    assert "expected a new folder, got one that is in use" in complaint(again)
    assert table.read_bytes() == before


def test_gray_and_colour_need_a_word(tmp_path: Path) -> None:
    (tmp_path / "mix").mkdir()
    Image.new("L", (16, 16)).save(tmp_path / "mix" / "a.png")
    Image.new("RGB", (16, 16), (200, 0, 0)).save(tmp_path / "mix" / "b.png")
    words = ["data", "prepare", tmp_path / "mix", "--size", "8", "--out"]
    assert "b.png: expected a gray image, got a colour one" in complaint(
        fastdime_command(*words, tmp_path / "x")
    )
    done = fastdime_command(*words, tmp_path / "y", "--channels", "3", "--convert-channels")
    assert done.code == 0, done.err
    for path in read_table(tmp_path / "y" / "table.csv").paths:
        with Image.open(path) as image:
            assert image.mode == "RGB"


def test_a_group_of_numbers(tmp_path: Path) -> None:
    made = fastdime_command("data", "phantom", "chest-drain", "--n", 4, "--size", 32, "--out", tmp_path / "p")
    told = fastdime_command("data", "inspect", made.out.strip(), "--group", "shortcut", "--json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["groups"]["column"] == "shortcut"
    sentence = complaint(fastdime_command("data", "inspect", made.out.strip(), "--task", "tsk"))
    assert len(sentence) < 200
    assert "others, got 'tsk'; did you mean 'task'?" in sentence


def test_a_phantom_to_train_on(tmp_path: Path) -> None:
    words = (
        "data",
        "phantom",
        "chest-drain",
        "--n",
        8,
        "--size",
        32,
        "--out",
        tmp_path / "set",
        "--no-truth",
    )
    made = fastdime_command(*words, "--split", "train=0.75", "--split", "val=0.25")
    assert made.code == 0
    assert set(read_table(made.out.strip()).text("split")) <= {"train", "val"}
    assert not (tmp_path / "set" / "truth").exists()
    wrong = fastdime_command(
        "data", "phantom", "chest-drain", "--out", tmp_path / "x", "--split", "train=most"
    )
    assert "--split train: expected a share, e.g. train=0.9, got 'most'" in complaint(wrong)
