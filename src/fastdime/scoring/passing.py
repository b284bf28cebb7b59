"""One pass over the pictures: judge and measure every pair."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastdime.errors import DataError, FastdimeError, expected
from fastdime.pipeline.pairs import Batch, Pairs
from fastdime.scoring.equipment import Equipment
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import NAN
from fastdime.scoring.standing import Standing

Progress = Callable[[float, int], None]
Column = NDArray[np.float64]


@dataclass
class Seen:
    """What was found; all arrays have one entry a pair, in the order of the pairs.

    Attributes:
        read: the pictures could be read; `failed` says why others could not.
        valid, predicted, target: the verdict, if there is a judge.
        columns: the metrics that are one number a pair, NaN where there is none.
        troubles: why meters had no numbers for some pairs, by their place in the equipment.
    """

    read: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    predicted: Column
    target: Column
    failed: list[str]
    columns: dict[str, Column] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)

    @classmethod
    def nothing(cls, pairs: Pairs) -> "Seen":
        """Begin."""
        n = len(pairs)
        return cls(np.zeros(n, bool), np.zeros(n, bool), np.full(n, NAN), np.full(n, NAN), list(pairs.failed))

    def keep(self, batch: Batch, equipment: Equipment) -> None:
        """Judge and measure some pairs."""
        rows, verdict = batch.rows, equipment.judged(batch)
        self.read[rows] = True
        if verdict is not None:
            self.valid[rows] = verdict.valid.numpy()
            self.predicted[rows] = verdict.predicted.numpy()
            self.target[rows] = verdict.target.numpy()
        for number, meter in enumerate(equipment.meters):
            try:
                measured = meter.measure(batch, verdict)
            except FastdimeError as error:
                self.troubles.setdefault(number, " ".join(str(error).split()))
                continue
            for name, values in measured.items():
                column = self.columns.setdefault(name, np.full(len(self.read), NAN))
                column[rows] = values

    def standing(self, request: ScoreRequest, equipment: Equipment) -> Standing:
        """Return what is known of every pair."""
        judged, classes = equipment.judge is not None, equipment.classes
        return Standing(
            self.read,
            self.valid if judged else None,
            self.predicted == classes if judged and classes is not None else None,
            request.protocol == "published",
            request.subset,
        )


def look(
    pairs: Pairs, equipment: Equipment, size: int, *, alone: bool, progress: Progress | None = None
) -> Seen:
    """Measure all pairs, some at a time.

    Args:
        alone: look at originals without a counterfactual, too.

    Raises:
        DataError: none can be read.
    """
    seen, done = Seen.nothing(pairs), 0
    for batch in pairs.batches(size, seen.failed):
        seen.keep(batch, equipment)
        done += len(batch.rows)
        if progress is not None:
            progress(done, len(pairs))
    for x in pairs.lone(size, seen.failed) if alone else ():
        for meter in equipment.meters:
            meter.see_alone(x)
    if not seen.read.any():
        raise DataError(expected(pairs.source, "a pair that can be read", f"none ({seen.failed[0]})"))
    return seen
