"""Which rows are trained on."""

from pathlib import Path

import pytest
import torch

from fastdime.data.table import Table
from fastdime.errors import DataError, InputError
from fastdime.training.choice import Choice, choose
from fastdime.training.pictures import Pictures, held_out, split

NAN = float("nan")


def table(n: int = 20, **columns: object) -> Table:
    ids = tuple(f"i{row}" for row in range(n))
    labels = {
        name: tuple(map(float, values)) for name, values in columns.items() if not isinstance(values[0], str)
    }
    groups = {name: tuple(values) for name, values in columns.items() if isinstance(values[0], str)}
    return Table(ids, tuple(Path(f"{name}.png") for name in ids), labels, groups)


def test_the_split_of_the_table_is_kept() -> None:
    parts = ["train"] * 10 + ["val"] * 4 + ["test"] * 6
    chosen = choose(table(split=parts), Choice(), 0)
    assert chosen.train.ids == tuple(f"i{row}" for row in range(10))
    assert chosen.valid.ids == tuple(f"i{row}" for row in range(10, 14))


@pytest.mark.parametrize("seed", range(5))
def test_without_val_rows_training_rows_validate_and_test_rows_never(seed: int) -> None:
    parts = ["test", "train"] * 10
    chosen = choose(table(split=parts), Choice(valid_share=0.3), seed)
    assert (len(chosen.train), len(chosen.valid)) == (7, 3)
    assert sorted(int(name[1:]) % 2 for name in chosen.train.ids + chosen.valid.ids) == [1] * 10


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_not_parted(seed: int) -> None:
    people = [f"p{row // 3}" for row in range(20)]
    for data, choice in (
        (table(patient=people), Choice(valid_share=0.25)),
        (table(who=people), Choice(group="who", valid_share=0.25)),
    ):
        chosen = choose(data, choice, seed)
        name = choice.group or "patient"
        assert not set(chosen.train.groups[name]) & set(chosen.valid.groups[name])
        assert 5 <= len(chosen.valid) <= 7
        assert len(chosen.train) + len(chosen.valid) == 20


def test_blank_groups_stand_alone() -> None:
    chosen = choose(table(patient=["p1", *[""] * 19]), Choice(valid_share=0.5), 0)
    assert len(chosen.valid) == 10


def test_blank_labels_are_left_out_and_counted() -> None:
    chosen = choose(table(shortcut=[0, 1, NAN, 1] * 5), Choice("shortcut", valid_share=0.2), 0)
    assert chosen.blank == 5
    assert len(chosen.train) + len(chosen.valid) == 15


def test_rows_without_a_split_are_left_out_and_counted() -> None:
    parts = ["train"] * 10 + ["val"] * 4 + [""] * 6
    chosen = choose(table(split=parts), Choice(), 0)
    assert (len(chosen.train), len(chosen.valid), chosen.unsplit) == (10, 4, 6)


@pytest.mark.parametrize("other", ["val", "test"])
@pytest.mark.parametrize("column", ["patient", "who"])
def test_a_split_that_parts_a_group_is_refused(column: str, other: str) -> None:
    columns = {"split": ["train"] * 15 + [other] * 5, column: [f"p{row // 2}" for row in range(20)]}
    data, group = table(**columns), None if column == "patient" else column
    sentence = f"column '{column}': expected each group in one split, got 'p7' in train and {other}; .*none"
    with pytest.raises(DataError, match=sentence):
        choose(data, Choice(group=group), 0)
    chosen = choose(data, Choice(group="none"), 0)
    assert len(chosen.train) + len(chosen.valid) == (20 if other == "val" else 15)


def test_groups_without_a_split_are_in_no_second_one() -> None:
    columns = {"split": ["train"] * 10 + [""] * 10, "patient": [f"p{row % 10}" for row in range(20)]}
    assert choose(table(**columns), Choice(), 0).unsplit == 10


@pytest.mark.parametrize(("where", "left"), [("task=1", 10), ("sex=f", 5)])
def test_only_some_rows(where: str, left: int) -> None:
    data = table(task=[0, 1] * 10, sex=["f", "m", "m", "m"] * 5)
    chosen = choose(data, Choice(where=where), 0)
    assert len(chosen.train) + len(chosen.valid) == left


@pytest.mark.parametrize(
    ("columns", "choice", "sentence"),
    [
        ({"task": [0, 1] * 10}, {"where": "task"}, "--where: expected COLUMN=VALUE"),
        ({"task": [0, 1] * 10}, {"where": "tsk=1"}, "did you mean 'task'"),
        ({"task": [0, 1] * 10}, {"where": "task=5"}, "expected at least one such row"),
        ({"task": [0, 2] * 10}, {"label": "task"}, "expected 0, 1 or blank, got 2"),
        ({"task": [0, 1] * 10}, {"label": "ask"}, "did you mean 'task'"),
        ({"split": ["test"] * 20}, {}, "expected rows to train on"),
        ({"split": ["train"] * 19 + ["tst"]}, {}, "image 'i19': expected train, val or test, got 'tst'"),
        ({"split": [0, 1] * 10}, {}, "expected train, val or test, got '0'"),
        ({"patient": ["one"] * 20}, {}, "20 images in 1 group"),
        ({}, {"group": "who"}, "expected one of"),
        ({}, {"valid_share": 1.5}, "--valid-share: expected a number between 0 and 1"),
    ],
)
def test_what_cannot_be_chosen(columns: dict[str, object], choice: dict[str, object], sentence: str) -> None:
    with pytest.raises((DataError, InputError), match=sentence):
        choose(table(**columns), Choice(**choice), 0)


def test_the_random_part_is_what_it_was() -> None:
    """Trainings that were begun earlier go on only if this stays."""
    order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    train, valid = held_out([str(row) for row in range(50)], 0.1, 3)
    assert torch.equal(valid, order[:5])
    assert torch.equal(train, order[5:])
    pictures = Pictures(torch.zeros(50, 1, 1, 1, dtype=torch.uint8), 8, torch.arange(50.0))
    assert torch.equal(split(pictures, 0.1, 3)[0].labels, order[5:].float())
