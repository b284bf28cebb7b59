"""The parts of a table: which rows train, validate and test, and which belong to one patient."""

from collections.abc import Sequence

from fastdime.data.table import PATIENT, Table
from fastdime.errors import DataError, expected

PARTS = ("train", "val", "test")
NONE = "none"  # in place of a column
ANY = "train, val, test or blank"


def has(table: Table, column: str) -> bool:
    """Tell whether a table has a column, of numbers or of text."""
    return column in table.labels or column in table.groups


def groups_of(table: Table, column: str | None) -> Sequence[str]:
    """Return the group of each row: of `patient` if no column is named; every row is its own without any."""
    if column == NONE or (column is None and not has(table, PATIENT)):
        return table.ids
    return table.grouping(column or PATIENT)


def parts_of(table: Table, column: str, remedy: str, wanted: str = ANY) -> Sequence[str]:
    """Return the part of each row, blank where there is none.

    Raises:
        DataError: a cell holds something else.
    """
    parts = table.text(column)
    for row, part in enumerate(parts):
        if part not in (*PARTS, ""):
            place = f"{table.place(row)}column {column!r} of image {table.ids[row]!r}"
            raise DataError(expected(place, wanted, repr(part), remedy))
    return parts


def check_whole(table: Table, column: str | None, parts: Sequence[str], remedy: str) -> None:
    """Refuse a split that parts a group: what is known by heart would look like what is learned."""
    seen: dict[str, str] = {}
    for row, (group, part) in enumerate(zip(groups_of(table, column), parts, strict=True)):
        if part and seen.setdefault(group, part) != part:
            place = f"{table.place(row)}column {column or PATIENT!r}"
            got = f"{group!r} in {seen[group]} and {part}"
            raise DataError(expected(place, "each group in one split", got, remedy))
