"""What a classifier says of the images of a table; what cannot be read is told, and the rest goes on."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data import io
from fastdime.data.table import Table
from fastdime.errors import DataError
from fastdime.scores import probabilities

BATCH = 64
Show = Callable[[str], AbstractContextManager[Callable[[float, int], None]]]


@dataclass(frozen=True)
class Reading:
    """How images are read: as for `io.read`."""

    size: int | None = None
    channels: int | None = None
    convert: bool = False

    def options(self) -> dict[str, Any]:
        """Return the arguments for `io.read`."""
        return dict(vars(self))


@dataclass
class Predictions:
    """The probability of class 1 by row of the table, and what is wrong with images that have none."""

    chances: dict[int, float] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def predict(
    classifier: ImageClassifier, table: Table, rows: Sequence[int], reading: Reading, show: Show
) -> Predictions:
    """Ask a classifier about some rows of a table, a batch at a time.

    Args:
        show: opens a progress display of something: `fastdime.terminal.progress_of`.
    """
    found = Predictions()
    with show("predictions") as progress:
        for first in range(0, len(rows), BATCH):
            batch = rows[first : first + BATCH]
            for alike in _by_shape(table, batch, reading, found.errors):
                found.chances |= _asked(classifier, alike)
            progress(first + len(batch), len(rows))
    return found


def _by_shape(
    table: Table, rows: Sequence[int], reading: Reading, errors: list[str]
) -> list[dict[int, Tensor]]:
    """Read images, and put those of one shape together."""
    shapes: dict[tuple[int, ...], dict[int, Tensor]] = {}
    for row in rows:
        try:
            x = io.read(table.paths[row], **reading.options()).x
        except DataError as error:
            errors.append(f"{table.place(row)}{error}")
        else:
            shapes.setdefault(tuple(x.shape), {})[row] = x
    return list(shapes.values())


def _asked(classifier: ImageClassifier, images: dict[int, Tensor]) -> dict[int, float]:
    x = torch.stack(list(images.values()))
    with torch.no_grad():
        found = probabilities(classifier.logits(x, torch.zeros(len(x), dtype=torch.int64)))
    return dict(zip(images, found[:, 1].tolist(), strict=True))
