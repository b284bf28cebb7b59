"""What is told about a table."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdime.data.inspect import FEW, Roles, as_text, inspect
from fastdime.data.table import Table, read_table
from fastdime.errors import DataError, InputError

ROWS = """path,task,shortcut,sick,split,patient,shortcut_predicted
a.png,1,1,0,train,p1,0
b.png,1,0,1,train,p2,1
c.png,0,,1,test,p1,0
d.png,0,0,0,test,,1
e.png,0,0,2,,,0
"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    random = np.random.default_rng(0)
    for name in "abde":
        Image.fromarray(random.integers(0, 256, (9, 7), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    Image.fromarray(random.integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(tmp_path / "b.png")
    (tmp_path / "d.png").write_text("no image")
    # The same pixels in another file: one is compressed otherwise.
    Image.open(tmp_path / "a.png").save(tmp_path / "c.png", compress_level=0)
    (tmp_path / "t.csv").write_text(ROWS)
    return read_table(tmp_path / "t.csv")


def test_everything_is_counted(table: Table) -> None:
    told = inspect(table, check=True)
    assert told["images"] == 5
    assert told["counts"] == [
        {"split": "test", "task": 0, "shortcut": 0, "images": 1},
        {"split": "test", "task": 0, "shortcut": None, "images": 1},
        {"split": "train", "task": 1, "shortcut": 0, "images": 1},
        {"split": "train", "task": 1, "shortcut": 1, "images": 1},
        {"split": None, "task": 0, "shortcut": 0, "images": 1},
    ]
    assert told["missing"] == {"task": 0, "shortcut": 1}
    assert told["predicted"] == {"task": 0, "shortcut": 2}
    assert told["groups"] == {
        "column": "patient",
        "groups": 4,
        "blank": 2,
        "in_several_splits": 1,
        "examples": ["p1"],
    }
    assert told["files"]["opened"] == 5
    assert told["files"]["kinds"] == [
        {"height": 9, "width": 7, "channels": 1, "bits": 8, "images": 3},
        {"height": 9, "width": 7, "channels": 3, "bits": 8, "images": 1},
    ]
    (bad,) = told["files"]["unreadable"]
    assert bad["id"] == "d"
    assert bad["place"].endswith("t.csv line 5")
    assert "d.png: expected" in bad["error"]
    assert told["duplicates"] == {"sets": [["a", "c"]], "in_several_splits": [["a", "c"]]}
    text = as_text(told)
    for words in ("train     1         1         1", "shortcut: 1 missing, 2 predicted", "line 5: "):
        assert words in text
    for words in ("groups of 'patient' in several splits: 1, such as 'p1'", "read: 1 of 5", "a and c"):
        assert any(words in sentence for sentence in told["warnings"])
        assert words in text


def test_columns_by_name(table: Table) -> None:
    told = inspect(table, Roles(task="shortcut", shortcut="task", group="split"))
    assert told["missing"] == {"task": 1, "shortcut": 0}
    assert told["groups"]["column"] == "split"
    assert told["duplicates"] is None
    with pytest.raises(InputError, match=r"column: expected one of .*, got 'tsk'; did you mean 'task'"):
        inspect(table, Roles(task="tsk"))
    with pytest.raises(DataError, match=r"t\.csv line 6 column 'sick' of image 'e': expected 0, 1 or blank"):
        inspect(table, Roles(task="sick"))


def test_a_column_of_numbers_may_also_group(table: Table) -> None:
    told = inspect(read_table(table.source, group="shortcut"), Roles(group="shortcut"))
    assert told["counts"] == inspect(table)["counts"]
    assert (told["groups"]["column"], told["groups"]["groups"], told["groups"]["blank"]) == ("shortcut", 3, 1)


def test_a_few_images_of_many_are_opened(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "a.png")
    many = Table(tuple(map(str, range(1000))), (tmp_path / "a.png",) * 1000)
    seen: list[int] = []
    told = inspect(many, progress=lambda done, of: seen.append(of - done))
    assert (told["files"]["opened"], seen[-1]) == (FEW, 0)
    assert (told["counts"], told["missing"], told["groups"], told["warnings"]) == ([], {}, None, [])
    assert as_text(told).startswith("images   1000\n")


def test_labels_alone_are_enough(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "a.png")
    table = Table(("a", "b"), (tmp_path / "a.png",) * 2, {"task": (1.0, math.nan)})
    assert inspect(table)["counts"] == [{"task": 1, "images": 1}, {"task": None, "images": 1}]
