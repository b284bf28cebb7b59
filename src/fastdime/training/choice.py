"""Which rows of a table are trained on, and which validate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastdime.data.splits import check_whole, groups_of, has, parts_of
from fastdime.data.table import SPLIT, Table
from fastdime.errors import DataError, InputError, expected
from fastdime.training.pictures import held_out


@dataclass(frozen=True)
class Choice:
    """How to choose rows.

    Attributes:
        label: column to be learned; rows where it is blank are left out.
        where: COLUMN=VALUE; only such rows are used.
        split: column that says train, val or test; None = `split` if the table has it.
        group: column whose groups are never parted; None = `patient` if the table has it, "none" = no column.
        valid_share: share of the training rows that validate, if the split has no val.
    """

    label: str | None = None
    where: str | None = None
    split: str | None = None
    group: str | None = None
    valid_share: float = 0.03

    def __post_init__(self) -> None:
        """Refuse a share that leaves nothing."""
        if not 0 < self.valid_share < 1:
            raise InputError(expected("--valid-share", "a number between 0 and 1", self.valid_share))


@dataclass(frozen=True)
class Chosen:
    """Rows to train on, rows that validate, and how many were left out.

    Attributes:
        blank: rows without a label.
        unsplit: rows whose split is blank.
    """

    train: Table
    valid: Table
    blank: int
    unsplit: int = 0


def choose(table: Table, choice: Choice, seed: int) -> Chosen:
    """Choose the rows to train on; rows of the split test are never among them."""
    table = table.where(choice.where) if choice.where else table
    everything, blank = len(table), 0
    table = table.take(row for row, part in enumerate(_parts(table, choice.split)) if part)
    unsplit = everything - len(table)
    remedy = f"mend the column {choice.split or SPLIT!r}, or train all the same with --group none"
    check_whole(table, choice.group, _parts(table, choice.split), remedy)
    if choice.label is not None:
        values = table.binary(choice.label)
        kept = [row for row, value in enumerate(values) if not math.isnan(value)]
        blank = len(table) - len(kept)
        table = table.take(kept)
    parts = _parts(table, choice.split)
    train = table.take(_rows(parts, "train"))
    if not len(train):
        raise DataError(
            expected("table", "rows to train on", "none", "check --split, --where and the labels")
        )
    if "val" in parts:
        return Chosen(train, table.take(_rows(parts, "val")), blank, unsplit)
    rows = held_out(groups_of(train, choice.group), choice.valid_share, seed)
    return Chosen(train.take(rows[0].tolist()), train.take(rows[1].tolist()), blank, unsplit)


def _rows(parts: Sequence[str], name: str) -> list[int]:
    return [row for row, part in enumerate(parts) if part == name]


def _parts(table: Table, column: str | None) -> Sequence[str]:
    if column is None and not has(table, SPLIT):
        return ["train"] * len(table)
    return parts_of(table, column or SPLIT, "name another with --split", "train, val or test")
