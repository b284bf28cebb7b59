"""Labels that are predictions, and which images to prefer when not all are needed."""

import math
from collections.abc import Iterable

from fastdime.data.table import Table
from fastdime.errors import InputError, expected


def predicted_column(column: str) -> str:
    """Name the column that is 1 where a label is a prediction."""
    return f"{column}_predicted"


def probability_column(column: str) -> str:
    """Name the column with the probability that a prediction was made from."""
    return f"{column}_probability"


def annotated(table: Table, column: str) -> tuple[bool, ...]:
    """Tell for each image whether a person gave it its label."""
    values = table.binary(column)
    marks = table.labels.get(predicted_column(column), (0.0,) * len(table))
    return tuple(not math.isnan(value) and mark != 1 for value, mark in zip(values, marks, strict=True))


def choose(table: Table, column: str, n: int, rows: Iterable[int] | None = None) -> list[int]:
    """Choose n images that have a label: first those a person labelled, then the surest predictions.

    Args:
        rows: the candidates, in an order that decides among equals; all images unless given.

    Raises:
        InputError: there are not so many.
    """
    known, values = annotated(table, column), table.column(column)
    chances = table.labels.get(probability_column(column), (math.nan,) * len(table))
    candidates = [row for row in (range(len(table)) if rows is None else rows) if not math.isnan(values[row])]
    if not 0 <= n <= len(candidates):
        raise InputError(expected(f"number of images with {column!r}", f"0 to {len(candidates)}", n))
    return sorted(candidates, key=lambda row: (not known[row], -_sureness(chances[row])))[:n]


def _sureness(chance: float) -> float:
    return 0.0 if math.isnan(chance) else max(chance, 1 - chance)
