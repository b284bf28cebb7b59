import hashlib
import json
import math
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastdime.audit.cells import Columns, Plan
from fastdime.audit.curate import curate
from fastdime.audit.curation_files import INFO_FILE, read_curation, write_curation
from fastdime.data.table import Table, read_table, write_table
from fastdime.errors import DataError, InputError
from support.commands import files

COLUMNS = Columns("Sick", "Ruler")
SMALL = Plan(n=40, n_test=8, n_balanced=8)
NAMES = ["D_100", "D_75", "D_50", "val_100", "val_75", "val_50", "test_100", "test_75", "test_50", "test_u"]


def table(root: Path, n: int = 400, split: bool = True) -> Table:
    """Images of four equal cells in sub-folders, with patients; the files are never opened."""
    names = tuple(f"{number:04}" for number in range(n))
    paths = tuple(root / f"part{number % 3}" / f"{number:04}.png" for number in range(n))
    labels = {"Sick": (1.0, 1.0, 0.0, 0.0) * (n // 4), "Ruler": (1.0, 0.0) * (n // 2), "age": (50.5,) * n}
    groups = {"patient": tuple(f"p{number // 4}" for number in range(n))}
    if split:
        parts = ("train", "train", "train", "test", "val")
        groups["split"] = tuple(parts[number // 4 % 5] for number in range(n))
    return Table(names, paths, labels, groups)


def saved(root: Path, images: Table | None = None) -> Table:
    """The same, read from a file."""
    root.mkdir(exist_ok=True)
    return read_table(write_table(images or table(root), root / "all.csv", root))


def test_what_is_written_is_what_was_curated(tmp_path: Path) -> None:
    images = saved(tmp_path / "data")
    made = write_curation(tmp_path / "out", images, tmp_path / "data", columns=COLUMNS, plan=SMALL)
    curation = curate(images, COLUMNS, SMALL)
    assert replace(made.curation, notes=curation.notes) == curation
    assert read_curation(tmp_path / "out") == made
    assert sorted(path.stem for path in made.folder.glob("*.csv")) == sorted(NAMES)
    assert [row["set"] for row in made.rows()] == NAMES
    lines = made.table("D_100").read_text().splitlines()
    assert lines[0] == "id,path,Sick,Ruler,patient"
    row = int(curation.train[100][0])
    label = int(images.labels["Sick"][row])
    assert lines[1] == f"{row:04},images/part{row % 3}/{row:04}.png,{label},{label},p{row // 4}"


def test_lists_are_tables_that_find_the_images(tmp_path: Path) -> None:
    images = saved(tmp_path / "data")
    for name, path in zip(images.ids, images.paths, strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    made = write_curation(tmp_path / "deep/er/out", images, tmp_path / "data", columns=COLUMNS, plan=SMALL)
    assert not [path for path in made.folder.iterdir() if path.is_dir() and not path.is_symlink()]
    for name in made.info.sets:
        found = read_table(made.table(name))
        assert [path.read_text() for path in found.paths] == list(found.ids)
        assert found.binary("Sick") == tuple(images.labels["Sick"][int(one)] for one in found.ids)
        assert found.groups["patient"] == tuple(images.groups["patient"][int(one)] for one in found.ids)


def test_the_counterfactuals_have_the_other_shortcut(tmp_path: Path) -> None:
    made = write_curation(tmp_path / "out", table(tmp_path), tmp_path, columns=COLUMNS, plan=SMALL)
    found = read_table(made.table("test_u"))
    assert list(found.labels) == ["Sick", "Ruler", "target"]
    assert all(t == 1 - r for t, r in zip(found.labels["target"], found.labels["Ruler"], strict=True))
    assert len(set(found.labels["target"])) == 2
    assert "target" not in read_table(made.table("test_50")).labels


def test_the_record_counts_cells_and_names_its_input(tmp_path: Path) -> None:
    images = saved(tmp_path / "data")
    made = write_curation(tmp_path / "out", images, tmp_path / "data", columns=COLUMNS, plan=SMALL)
    told = json.loads((tmp_path / "out" / INFO_FILE).read_text())
    digest = hashlib.sha256((tmp_path / "data/all.csv").read_bytes()).hexdigest()
    assert told["table"] == {"name": "all.csv", "images": 400, "sha256": digest}
    assert (told["rule"], told["seed"], told["ks"]) == ("balanced", 0, [100, 75, 50])
    assert [told[name] for name in ("task", "shortcut", "split", "group", "n")] == [
        *("Sick", "Ruler", "split", "patient", 40),
    ]
    for name, one in told["sets"].items():
        found = read_table(made.table(name))
        counts = Counter(zip(found.labels["Sick"], found.labels["Ruler"], strict=True))
        assert {(cell["task"], cell["shortcut"]): cell["images"] for cell in one["cells"]} == {
            cell: counts[cell] for cell in ((1, 1), (1, 0), (0, 1), (0, 0))
        }
        assert one["images"] == len(found) == sum(counts.values())
    assert str(tmp_path) not in json.dumps(told)
    assert made.rows()[1] == {
        **{"set": "D_75", "images": 40},
        **{"Sick 1, Ruler 1": 15, "Sick 1, Ruler 0": 5, "Sick 0, Ruler 1": 5, "Sick 0, Ruler 0": 15},
    }


def test_small_cells_are_told_with_every_rule(tmp_path: Path) -> None:
    images = table(tmp_path)
    made = write_curation(tmp_path / "out", images, tmp_path, columns=COLUMNS, plan=SMALL)
    sizes = "D_75 (5), val_75 (5), test_100 (4), test_75 (1), test_50 (2), test_u (2)"
    assert made.info.notes[-1] == f"cells of fewer than 10 images: {sizes}"
    assert made.curation.notes == made.info.notes
    some = images.take(range(80))
    made = write_curation(tmp_path / "published", some, tmp_path, columns=COLUMNS, rule="medical")
    sizes = "D_75 (3), D_50 (6), test_100 (4), test_75 (1), test_50 (2), test_u (4)"
    assert made.info.notes == (f"cells of fewer than 10 images: {sizes}",)
    assert (made.info.seed, made.curation.val) == (42, {})
    made = write_curation(tmp_path / "many", images, tmp_path, columns=COLUMNS, plan=Plan(ks=(100,)))
    assert made.info.notes == ()  # what k = 100 leaves empty is no small cell


def test_blank_labels_are_counted(tmp_path: Path) -> None:
    images = table(tmp_path)
    blank = (math.nan, *images.labels["Ruler"][1:])
    images = replace(images, labels={**images.labels, "Ruler": blank})
    made = write_curation(tmp_path / "out", images, tmp_path, columns=COLUMNS)
    assert made.info.left_out == made.curation.left_out == {"blank label": 1}


def test_the_same_again_is_left_as_it_is(tmp_path: Path) -> None:
    images = saved(tmp_path / "data")
    words = {"columns": COLUMNS, "plan": SMALL}
    first = write_curation(tmp_path / "out", images, tmp_path / "data", **words)
    times = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    assert write_curation(tmp_path / "out", images, tmp_path / "data", **words) == first
    turned = images.take(np.random.default_rng(0).permutation(len(images)).tolist())
    named = Columns("Sick", "Ruler", "split", "patient")
    assert write_curation(tmp_path / "out", turned, tmp_path / "data", columns=named, plan=SMALL) == first
    assert {path: path.stat().st_mtime_ns for path in first.folder.iterdir()} == times
    assert sorted(os.listdir(tmp_path)) == ["data", "out"]  # nothing is left beside it


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"plan": Plan(n=20)}, "out: n: the folder has 40, you ask for 20; choose another --out"),
        ({"plan": Plan((90, 50), 40)}, "ks: the folder has 100,75,50, you ask for 90,50;"),
        ({"plan": Plan(n=40, seed=1)}, "seed: the folder has 0, you ask for 1;"),
        ({"plan": Plan(n=40, n_test=8)}, "n_test: the folder has none, you ask for 8;"),
        ({"rule": "medical", "plan": Plan()}, "rule: the folder has balanced, you ask for medical;"),
        ({"columns": Columns("Ruler", "Sick")}, "task: the folder has Sick, you ask for Ruler;"),
        ({"columns": Columns("Sick", "Ruler", "none")}, "split: the folder has split, you ask for none;"),
    ],
)
def test_another_curation_is_refused(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    words = {"columns": COLUMNS, "plan": Plan(n=40)}
    write_curation(tmp_path / "out", table(tmp_path), tmp_path, **words)
    before = files(tmp_path)
    with pytest.raises(InputError, match=sentence) as caught:
        write_curation(tmp_path / "out", table(tmp_path), tmp_path, **(words | change))
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == before


def test_another_table_or_other_images_are_refused(tmp_path: Path) -> None:
    write_curation(tmp_path / "out", table(tmp_path), tmp_path, columns=COLUMNS)
    sentence = "expected lists of the same images, got those of another table; choose another --out"
    with pytest.raises(InputError, match=sentence):
        write_curation(tmp_path / "out", table(tmp_path, 360), tmp_path, columns=COLUMNS)
    moved = tmp_path / "moved"
    with pytest.raises(InputError, match=f"out/images: expected a link to {moved}, got {tmp_path}; mend it"):
        write_curation(tmp_path / "out", table(moved), moved, columns=COLUMNS)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="expected a new or empty folder, got one that is in use"):
        write_curation(tmp_path, table(tmp_path), tmp_path, columns=COLUMNS)
    (tmp_path / "empty").mkdir()
    assert write_curation(tmp_path / "empty", table(tmp_path), tmp_path, columns=COLUMNS).info.sets
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_nothing_is_left_of_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = table(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"image '\d+': expected a file below"):
        write_curation(tmp_path / "out", images, tmp_path / "data", columns=COLUMNS)

    def no_links(*words: object, **named: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", no_links)
    with pytest.raises(InputError, match="images: expected a place that can be written, got Operation not"):
        write_curation(tmp_path / "out", images, tmp_path / "elsewhere", columns=COLUMNS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "D_75.csv",
            "id,path\na,a.png\n",
            "D_75.csv: expected the list of images that was written, got another",
        ),
        ("test_u.csv", None, "test_u.csv: expected the list of images that was written, got none; curate"),
        (INFO_FILE, None, r"expected a folder written by `fastdime data curate`, got no curation.json in it"),
        (INFO_FILE, "{", r"curation.json: expected a JSON file"),
        (INFO_FILE, "{}", r"curation.json: expected a value for fastdime, got none"),
    ],
)
def test_a_changed_folder_is_refused(tmp_path: Path, name: str, text: str | None, sentence: str) -> None:
    made = write_curation(tmp_path / "out", table(tmp_path), tmp_path, columns=COLUMNS)
    (made.folder / name).unlink()
    if text is not None:
        (made.folder / name).write_text(text)
    with pytest.raises(DataError, match=sentence) as caught:
        read_curation(made.folder)
    assert "\n" not in str(caught.value)


def test_a_record_without_test_u_is_refused(tmp_path: Path) -> None:
    made = write_curation(tmp_path / "out", table(tmp_path), tmp_path, columns=COLUMNS)
    told = json.loads((made.folder / INFO_FILE).read_text())
    del told["sets"]["test_u"]
    (made.folder / INFO_FILE).write_text(json.dumps(told))
    with pytest.raises(DataError, match="expected a set test_u, got none"):
        read_curation(made.folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rule": "celeba", "plan": Plan(seed=3)}, "seed: expected none with the rule 'celeba', .* got 3"),
        (
            {"plan": Plan((33.333333, 33.3333333))},
            "k: expected percentages that differ .* got two that are 33.3",
        ),
        ({"rule": "ballanced"}, "rule: .* did you mean 'balanced'"),
        ({"columns": Columns("Sick", "target")}, "column: expected another name than 'target', which test_u"),
        ({"columns": Columns("Sick", "Rule")}, "did you mean 'Ruler'"),
        ({"columns": Columns("Sick", "Ruler", group="who"), "rule": "medical"}, "column: .* got 'who'"),
    ],
)
def test_bad_requests_are_one_clear_line(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        write_curation(tmp_path / "out", table(tmp_path), tmp_path, **({"columns": COLUMNS} | change))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("group", "kept"), [(None, "patient"), ("none", "patient"), ("doctor", "doctor")])
def test_the_column_of_groups_comes_along(tmp_path: Path, group: str | None, kept: str) -> None:
    images = table(tmp_path, split=False)
    doctors = tuple(f"d{number // 8}" for number in range(len(images)))
    images = replace(images, groups={**images.groups, "doctor": doctors})
    columns = Columns("Sick", "Ruler", group=group)
    made = write_curation(tmp_path / "out", images, tmp_path, columns=columns)
    assert list(read_table(made.table("D_50")).groups) == [kept]
    assert made.info.group == (group or "patient")


def test_no_column_is_written_twice(tmp_path: Path) -> None:
    columns = Columns("Sick", "Ruler", group="Ruler")
    made = write_curation(tmp_path / "out", table(tmp_path), tmp_path, columns=columns, rule="medical")
    assert made.table("D_50").read_text().startswith("id,path,Sick,Ruler\n")
