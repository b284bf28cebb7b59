"""Labels of pairs: a table joined by id."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastdime.data.cells import read_sheet
from fastdime.data.splits import NONE
from fastdime.data.table import PATIENT, Table, read_table
from fastdime.errors import DataError, InputError, expected
from fastdime.scoring.request import ScoreRequest


@dataclass(frozen=True)
class Labels:
    """The rows of a table that belong to the pairs, in their order; `table` is the whole of it."""

    pairs: Table
    table: Table

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a label column, NaN where a label is missing."""
        return np.array(self.pairs.column(name), dtype=np.float64)


def read_labels(request: ScoreRequest, ids: tuple[str, ...]) -> Labels | None:
    """Read the table that a request names.

    Raises:
        DataError: a pair has no row in it.
    """
    if request.labels is None:
        return None
    path = request.labels
    has_paths = "path" in read_sheet(path).columns
    table = read_table(path, path_column="path" if has_paths else "id", group=_group(request))
    place = {name: row for row, name in enumerate(table.ids)}
    missing = [name for name in ids if name not in place]
    if missing:
        got = f"none for {len(missing)} of {len(ids)}, such as {missing[0]!r}"
        remedy = f"its rows are named {table.ids[0]!r}"
        raise DataError(expected(str(path), "a row for each pair", got, remedy))
    return Labels(table.take(place[name] for name in ids), table)


def groups_of(request: ScoreRequest, labels: Labels | None) -> tuple[str, ...] | None:
    """Return the patient of each pair, if that is known."""
    if labels is None or request.group == NONE:
        if labels is None and request.group not in (None, NONE):
            raise InputError(expected("--group", "a table with that column", "none", "give --labels"))
        return None
    if request.group is not None:
        return labels.pairs.grouping(request.group)
    return labels.pairs.grouping(PATIENT) if PATIENT in labels.pairs.groups else None


def needed(
    labels: Labels | None, column: str | None, option: str, purpose: str, *, zero_or_one: bool = False
) -> NDArray[np.float64]:
    """Return a column that a metric cannot do without, NaN where a label is missing."""
    if labels is None or column is None:
        remedy = f"give --labels TABLE and {option}COLUMN"
        raise InputError(expected(purpose, "labels", "none", remedy))
    return np.array(labels.pairs.binary(column) if zero_or_one else labels.pairs.column(column))


def _group(request: ScoreRequest) -> str | None:
    return None if request.group == NONE else request.group
