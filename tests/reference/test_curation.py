"""The published curations, row for row."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fastdime.audit.cells import Columns, Plan
from fastdime.audit.curate import curate
from fastdime.data.cells import labels_and_texts, read_sheet
from fastdime.data.table import ALWAYS_TEXT, Table
from support.real_data import real
from support.recordings import Recording

RECORDING = Recording("curation")
PARTITIONS = ("train", "val", "test")
REAL = {
    "chexpert": ("che_pm_meta.csv", "Cardiomegaly", "PM"),
    "nih": ("nih_drain_meta.csv", "Pneumothorax", "Drain"),
    "isic": ("isic_ruler_meta.csv", "Mal", "Ruler"),
}


def table(task: Iterable[float], shortcut: Iterable[float], splits: Iterable[str]) -> Table:
    labels = {"task": tuple(map(float, task)), "shortcut": tuple(map(float, shortcut))}
    names = tuple(map(str, range(len(labels["task"]))))
    return Table(names, tuple(map(Path, names)), labels, {"split": tuple(splits)})


def is_recorded(ids: Sequence[str], name: str) -> None:
    np.testing.assert_array_equal(np.array(ids, dtype=int), RECORDING.array(name))


def test_every_array_of_the_file_is_known() -> None:
    groups = {"celeba", "med", *(f"real_{name}" for name in REAL)}
    assert set(RECORDING.groups()) == groups
    assert all("/" in name for name in RECORDING.arrays)


def test_celeba() -> None:
    young, smiling, partition = (
        RECORDING.array(f"celeba/{name}") for name in ("young", "smiling", "partition")
    )
    images = table(young, smiling, (PARTITIONS[part] for part in partition))
    found = curate(images, plan=Plan(n=160, n_test=40, n_balanced=48), rule="celeba")
    for k in (100, 75, 50):
        is_recorded(found.train[k], f"celeba/train_{k}_n80_rows")
    is_recorded(found.test[75], "celeba/test_75_n20_rows")
    is_recorded(found.balanced, "celeba/val_50_n24_rows")
    assert not RECORDING.unseen("celeba/")


def test_medical() -> None:
    disease, shortcut, trains = (
        RECORDING.array(f"med/{name}") for name in ("disease", "shortcut", "is_train")
    )
    images = table(disease, shortcut, ("train" if one else "test" for one in trains))
    found = curate(images, rule="medical")
    for k in (100, 75, 50):
        is_recorded(found.train[k], f"med/D{k}_train_rows")
    is_recorded(found.balanced, "med/test_u_rows")
    assert not RECORDING.unseen("med/")


@pytest.mark.parametrize("name", REAL)
def test_published_annotations(name: str) -> None:
    file, task, shortcut = REAL[name]
    sheet = read_sheet(real(f"annotations/{file}"))
    labels, texts = labels_and_texts(sheet.columns, ALWAYS_TEXT)
    names = tuple(map(str, range(len(sheet.lines))))
    images = Table(names, tuple(map(Path, names)), labels, texts)
    found = curate(images, Columns(task, shortcut), rule="medical")
    for k in (100, 75, 50):
        is_recorded(found.train[k], f"real_{name}/D{k}_train_rows")
    is_recorded(found.balanced, f"real_{name}/test_u_rows")
    assert not RECORDING.unseen(f"real_{name}/")
