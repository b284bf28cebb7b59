import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastdime.audit.cells import CELLS, Cell, Columns, Plan
from fastdime.audit.curate import curate
from fastdime.data.table import Table
from fastdime.errors import DataError, InputError

SIZES = {(1, 1): 120, (1, 0): 60, (0, 1): 80, (0, 0): 200}


def table(sizes: dict[Cell, int] | None = None, *, per_patient: int = 1, split: bool = False) -> Table:
    """Mixed cells, and patients whose images may be of different cells."""
    cells = [cell for cell, size in (sizes or SIZES).items() for _ in range(size)]
    mixed = [cells[place] for place in np.random.default_rng(0).permutation(len(cells))]
    names = tuple(f"image{row:04}" for row in range(len(mixed)))
    labels = {"task": tuple(float(t) for t, _ in mixed), "shortcut": tuple(float(s) for _, s in mixed)}
    groups = {"patient": tuple(f"p{row // per_patient}" for row in range(len(mixed)))}
    if split:
        parts = ("train", "train", "train", "test", "val")
        groups["split"] = tuple(parts[row // per_patient % 5] for row in range(len(mixed)))
    return Table(names, tuple(map(Path, names)), labels, groups)


def cells_of(images: Table, ids: Iterable[str]) -> Counter[Cell]:
    row = {name: place for place, name in enumerate(images.ids)}
    task, shortcut = images.labels["task"], images.labels["shortcut"]
    return Counter((int(task[row[name]]), int(shortcut[row[name]])) for name in ids)


def patients_of(images: Table, ids: Iterable[str]) -> set[str]:
    patient = dict(zip(images.ids, images.groups["patient"], strict=True))
    return {patient[name] for name in ids}


def with_label(images: Table, column: str, rows: Sequence[int], value: float) -> Table:
    values = list(images.labels[column])
    for row in rows:
        values[row] = value
    return replace(images, labels={**images.labels, column: tuple(values)})


@pytest.mark.parametrize("split", [True, False])
def test_the_shortcut_goes_with_the_task_in_k_percent(split: bool) -> None:
    images = table(split=split)
    found = curate(images, plan=Plan(ks=(100, 75, 50, 25), n=40, n_test=8, n_balanced=8))
    for k, follows in ((100, 20), (75, 15), (50, 10), (25, 5)):
        cells = cells_of(images, found.train[k])
        assert [cells[cell] for cell in CELLS] == [follows, 20 - follows, 20 - follows, follows]
        assert len(set(found.train[k])) == len(found.train[k]) == 40
        assert len(found.test[k]) == 8
    assert cells_of(images, found.balanced) == dict.fromkeys(CELLS, 2)


def test_without_numbers_there_are_as_many_as_the_smallest_cell_allows() -> None:
    images = table({(1, 1): 30, (1, 0): 7, (0, 1): 9, (0, 0): 40}, split=True)
    rows = {"train": [], "test": []}
    for name, part in zip(images.ids, images.groups["split"], strict=True):
        rows.setdefault(part, []).append(name)
    there = {part: cells_of(images, names) for part, names in rows.items()}
    found = curate(images)
    sizes = {len(ids) for ids in found.train.values()}
    assert len(sizes) == 1  # the same for every k, so that only k differs
    half = sizes.pop() // 2
    train = there["train"]
    fits = [
        n
        for n in range(1, 100)
        if n <= min(train[1, 1], train[0, 0]) and n - math.floor(n / 2 + 0.5) <= min(train[1, 0], train[0, 1])
    ]
    assert half == max(fits)
    assert len(found.balanced) == 4 * min(there["test"].values())
    assert any("test_u" in note for note in found.notes)  # so few that it is said


def test_a_stronger_correlation_keeps_what_it_can_of_a_weaker_one() -> None:
    images = table()
    found = curate(images, plan=Plan(n=60))
    both = set(found.train[100]) & set(found.train[50])
    assert cells_of(images, both) == {(1, 1): 15, (0, 0): 15}


def test_the_order_of_rows_does_not_matter_and_the_seed_does() -> None:
    images = table(per_patient=3)
    turned = images.take(np.random.default_rng(1).permutation(len(images)).tolist())
    assert curate(images) == curate(turned)
    assert curate(images) == curate(images)
    assert curate(images, plan=Plan(seed=1)) != curate(images)


@pytest.mark.parametrize("split", [True, False])
def test_no_patient_is_on_two_sides(split: bool) -> None:
    images = table(per_patient=4, split=split)
    found = curate(images)
    sides = [
        patients_of(images, (name for ids in some for name in ids))
        for some in (found.train.values(), found.val.values(), [*found.test.values(), found.balanced])
    ]
    assert all(sides)
    assert len(set.union(*sides)) == sum(map(len, sides))


def test_the_split_of_the_table_is_kept() -> None:
    images = table(split=True)
    found = curate(images)
    part = dict(zip(images.ids, images.groups["split"], strict=True))
    assert {part[name] for ids in found.train.values() for name in ids} == {"train"}
    assert {part[name] for ids in found.val.values() for name in ids} == {"val"}
    assert {part[name] for name in (*found.balanced, *found.test[75])} == {"test"}


def test_without_val_a_share_of_train_validates() -> None:
    images = table(split=True)
    splits = tuple("train" if part == "val" else part for part in images.groups["split"])
    images = replace(images, groups={**images.groups, "split": splits})
    found = curate(images)
    part = dict(zip(images.ids, splits, strict=True))
    assert {part[name] for name in found.val[50]} == {"train"}
    assert not set(found.val[50]) & {name for ids in found.train.values() for name in ids}


def test_a_split_that_is_made_gives_each_part_its_share_of_a_rare_cell() -> None:
    images = table({(1, 1): 500, (1, 0): 20, (0, 1): 500, (0, 0): 500})
    found = curate(images, plan=Plan(ks=(50,)))
    rare = {
        "test": cells_of(images, found.balanced)[1, 0],
        "val": cells_of(images, found.val[50])[1, 0],
        "train": cells_of(images, found.train[50])[1, 0],
    }
    assert rare == {"test": 4, "val": 2, "train": 14}


def test_a_patient_goes_by_the_rarest_of_its_images() -> None:
    """The 20 patients of the rare cell have images of the most frequent one too."""
    cells = [*[(1, 0), (0, 0)] * 20, *[(0, 0)] * 400, *[(1, 1)] * 200, *[(0, 1)] * 200]
    names = tuple(f"image{row:04}" for row in range(len(cells)))
    labels = {"task": tuple(float(t) for t, _ in cells), "shortcut": tuple(float(s) for _, s in cells)}
    groups = {"patient": tuple(f"p{row // 2 if row < 40 else row}" for row in range(len(cells)))}
    images = Table(names, tuple(map(Path, names)), labels, groups)
    for seed in range(3):
        found = curate(images, plan=Plan(ks=(50,), seed=seed))
        rare = [cells_of(images, ids)[1, 0] for ids in (found.balanced, found.val[50], found.train[50])]
        assert rare == [4, 2, 14]


def test_the_counterfactuals_have_the_other_shortcut() -> None:
    images = table()
    found = curate(images)
    shortcut = dict(zip(images.ids, images.labels["shortcut"], strict=True))
    assert list(found.targets) == list(found.balanced)
    assert all(found.targets[name] == 1 - shortcut[name] for name in found.balanced)


def test_blank_labels_and_blank_splits_are_left_out_and_counted() -> None:
    images = with_label(table(split=True), "shortcut", [0, 5], math.nan)
    images = with_label(images, "task", [5, 6], math.nan)
    splits = ("train", "", *images.groups["split"][2:])
    images = replace(images, groups={**images.groups, "split": splits})
    found = curate(images)
    assert found.left_out == {"blank label": 3, "blank split": 1}
    used = {name for ids in (*found.train.values(), found.balanced) for name in ids}
    assert not used & {images.ids[row] for row in (0, 1, 5, 6)}


def test_labels_of_a_person_come_first_and_then_sure_predictions() -> None:
    images = table()
    chances = np.random.default_rng(2).uniform(0.8, 1, len(images))
    marks = np.random.default_rng(3).integers(0, 2, len(images)).astype(float)
    extra = {"shortcut_predicted": tuple(marks), "shortcut_probability": tuple(chances)}
    images = replace(images, labels={**images.labels, **extra})
    place = {name: row for row, name in enumerate(images.ids)}

    def rank(name: str) -> tuple[float, float]:
        return marks[place[name]], -chances[place[name]] if marks[place[name]] else 0.0

    everyone = curate(images, plan=Plan(ks=(100,)))
    few = curate(images, plan=Plan(ks=(100,), n=60))
    for cell in ((1, 1), (0, 0)):
        taken = [name for name in few.train[100] if cells_of(images, [name])[cell]]
        left = [
            name for name in set(everyone.train[100]) - set(few.train[100]) if cells_of(images, [name])[cell]
        ]
        assert taken
        assert left
        assert max(map(rank, taken)) <= min(map(rank, left))


def test_a_cell_that_is_too_small_is_named() -> None:
    images = table({(1, 1): 50, (1, 0): 0, (0, 1): 50, (0, 0): 50}, split=True)
    wanted = (
        r"train images with task 1 and shortcut 0: expected at least \d+ for D_75 of \d+ images, got 0; ask"
    )
    with pytest.raises(DataError, match=wanted):
        curate(images)
    images = table(split=True)
    with pytest.raises(
        DataError, match=r"test images with task 1 and shortcut 0: expected at least 100 for test_u"
    ):
        curate(images, plan=Plan(n_balanced=400))


def test_a_rounded_k_is_refused() -> None:
    with pytest.raises(InputError, match=r"images of D: expected at least 22, to show every k, got 4"):
        curate(table(), plan=Plan(ks=(95,), n=4))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"columns": Columns("tusk")}, r"label column: expected one of .*'tusk'; did you mean 'task'"),
        ({"columns": Columns(split="sides")}, r"column: .*'sides'"),
        ({"columns": Columns(group="doctor")}, r"column: .*'doctor'"),
        ({"rule": "blanced"}, r"rule: .*did you mean 'balanced'"),
        ({"rule": "celeba"}, r"val images with task 0 and shortcut 1: expected at least 500 for test_u, got"),
        ({"rule": "medical", "plan": Plan(n=8)}, r"sizes: expected none with the rule 'medical', got n = 8"),
    ],
)
def test_bad_requests_are_one_clear_line(change: dict[str, object], sentence: str) -> None:
    with pytest.raises((InputError, DataError), match=sentence) as caught:
        curate(table(split=True), **change)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ks": (120,)}, "k: expected different percentages from 0 to 100, got 120"),
        ({"ks": (50, 50)}, "k: expected different"),
        ({"ks": ()}, "k: .* got none"),
        ({"n": 7}, "n: expected a multiple of 2, so that labels are balanced, got 7"),
        ({"n_balanced": 6}, "n_balanced: expected a multiple of 4"),
        ({"seed": -1}, "seed: "),
    ],
)
def test_bad_plans_are_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Plan(**change)  # type: ignore[arg-type]


def test_the_task_is_not_its_own_shortcut() -> None:
    with pytest.raises(InputError, match="shortcut: expected another column than the task"):
        Columns("task", "task")


def test_one_label_alone_is_refused() -> None:
    images = table({(0, 1): 5, (0, 0): 5, (1, 0): 0, (1, 1): 0})
    with pytest.raises(DataError, match="column 'task': expected images with 0 and with 1, got only 0 in 10"):
        curate(images)
    blank = with_label(images, "shortcut", range(10), math.nan)
    with pytest.raises(DataError, match=r"column 'task': .* got no labelled image"):
        curate(blank)


def test_a_patient_in_two_splits_is_refused_unless_that_is_wanted() -> None:
    images = table(split=True)
    patients = ("p3", *images.groups["patient"][1:])  # p3 is in test
    images = replace(images, groups={**images.groups, "patient": patients})
    with pytest.raises(
        DataError, match=r"column 'patient': expected each group in one split, got 'p3' in train and"
    ):
        curate(images)
    assert curate(images, Columns(group="none")).train
    assert curate(images, Columns(split="none")).train


@pytest.mark.parametrize(
    ("splits", "sentence"),
    [
        ("train", "column 'split': expected rows of test, got none"),
        ("dev", "expected train, val, test or blank"),
    ],
)
def test_splits_without_a_test_or_with_other_names_are_refused(splits: str, sentence: str) -> None:
    images = table(split=True)
    images = replace(images, groups={"split": (splits,) * len(images)})
    with pytest.raises(DataError, match=sentence):
        curate(images)


def test_the_published_rules_count_what_they_leave_out_and_need_a_split() -> None:
    images = with_label(
        table({(1, 1): 40, (1, 0): 150, (0, 1): 150, (0, 0): 40}, split=True), "task", [2], math.nan
    )
    splits = ("", *images.groups["split"][1:])
    found = curate(replace(images, groups={**images.groups, "split": splits}), rule="medical")
    assert found.left_out == {"blank label": 1, "blank split": 1}
    assert len(found.balanced) == 4 * 9
    assert {len(ids) for ids in found.test.values()} == {2 * 8}  # a multiple of 4, as D_k
    with pytest.raises(
        DataError, match="test images with task 1 and shortcut 0: expected at least 20 for test_u"
    ):
        curate(table(split=True), rule="medical")  # where the published program stops with a traceback
    with pytest.raises(InputError, match="table: expected a column 'split', as published, got none"):
        curate(table(), rule="medical")
