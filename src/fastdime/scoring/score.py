"""Score pairs: one pass over the pictures, then the table."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdime.errors import FastdimeError
from fastdime.metrics.statistics import Estimate, mean_interval, share_interval
from fastdime.pipeline.pairs import Pairs
from fastdime.scoring.catalogue import METRICS
from fastdime.scoring.equipment import Equipment, equip
from fastdime.scoring.labels import groups_of, read_labels
from fastdime.scoring.meters import Meter
from fastdime.scoring.notes import notes
from fastdime.scoring.passing import Column, Progress, Seen, look
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import Row, missing
from fastdime.scoring.standing import Selection, Standing


@dataclass(frozen=True)
class Scores:
    """The table of a set of pairs.

    Attributes:
        rows: one for each metric, in the order in which they were asked for.
        values: one number a pair and metric, NaN where there is none.
        groups: the patient of each pair, if known.
        failed: why pairs could not be used.
        notes: what has to be known about the pairs.
    """

    source: str
    ids: tuple[str, ...]
    rows: dict[str, Row]
    values: dict[str, Column]
    standing: Standing
    groups: tuple[str, ...] | None = None
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return what is printed as JSON."""
        return {
            "source": self.source,
            "pairs": int(self.standing.read.sum()),
            "failed": len(self.failed),
            "notes": list(self.notes),
            "metrics": {name: row.plain() for name, row in self.rows.items()},
        }


def score(pairs: Pairs, request: ScoreRequest | None = None, progress: Progress | None = None) -> Scores:
    """Score pairs.

    A metric that lacks a network or a label is a row without a value that says what to give; the others are
    computed all the same.

    Args:
        progress: called with (pairs done, pairs in all).

    Raises:
        FastdimeError: the request is wrong, or no pair can be read.
    """
    request = request or ScoreRequest()
    labels = read_labels(request, pairs.ids)
    groups = groups_of(request, labels)
    equipment = equip(pairs, request, labels)
    with ExitStack() as stack:
        for meter in equipment.meters:
            stack.callback(meter.close)
        alone = request.protocol == "published"
        seen = look(pairs, equipment, request.batch_size, alone=alone, progress=progress)
        standing = seen.standing(request, equipment)
        averaging = Averaging(standing, groups, request)
        rows = _table(equipment, seen, averaging)
    told = tuple(notes(pairs, seen, equipment))
    return Scores(pairs.source, pairs.ids, rows, seen.columns, standing, groups, tuple(seen.failed), told)


@dataclass(frozen=True)
class Averaging:
    """How one number a pair becomes a mean with its interval."""

    standing: Standing
    groups: tuple[str, ...] | None
    request: ScoreRequest

    def row(self, name: str, column: Column, meter: Meter, trouble: str) -> Row:
        """Average a metric over its pairs.

        Args:
            trouble: why some pairs have no value, if something went wrong.
        """
        chosen = self.standing.pairs(name)
        kept = np.flatnonzero(chosen.rows & ~np.isnan(column))
        found = self._mean(name, column, kept)
        warning = _warning(name, found, chosen, trouble)
        more = meter.more(name, chosen.rows)
        network = meter.gives[name]
        return Row(found.value, found.low, found.high, found.n, chosen.name, network, warning, more)

    def _mean(self, name: str, column: Column, kept: NDArray[np.int64]) -> Estimate:
        groups = None if self.groups is None else [self.groups[row] for row in kept]
        request = self.request
        found = mean_interval(column[kept], groups, resamples=request.resamples, seed=request.seed)
        if METRICS[name].share and found.low == found.high:  # a bootstrap of equal values has no width
            low, high = share_interval(found.value, found.clusters)
            return replace(found, low=low, high=high)
        return found


def _warning(name: str, found: Estimate, chosen: Selection, trouble: str) -> str:
    """Say what has to be known about a mean."""
    pairs = int(chosen.rows.sum())
    if pairs == 0:
        return f"no pair to average over: none is {chosen.name}"
    without, reason = pairs - found.n, trouble or METRICS[name].absent
    told = f"{without} of {pairs} pairs have no value: {reason}" if without and reason else ""
    return "; ".join(filter(None, ["" if found.n == 0 and told else found.reason, told]))


def _table(equipment: Equipment, seen: Seen, averaging: Averaging) -> dict[str, Row]:
    rows = {name: missing(reason) for name, reason in equipment.reasons.items()}
    for number, meter in enumerate(equipment.meters):
        trouble = seen.troubles.get(number, "")
        for name in (name for name in equipment.wanted if name in meter.gives):
            try:
                rows |= _concluded(name, meter, seen, averaging, trouble)
            except FastdimeError as error:
                rows[name] = missing(error, meter.gives[name])
    order = [*equipment.wanted, *(name for name in rows if name not in equipment.wanted)]
    return {name: rows[name] for name in order}


def _concluded(name: str, meter: Meter, seen: Seen, averaging: Averaging, trouble: str) -> dict[str, Row]:
    """Return the row of a metric, and those that belong beside it."""
    if name in seen.columns:
        return {name: averaging.row(name, seen.columns[name], meter, trouble)}
    concluded = meter.conclude([name], averaging.standing)
    if not concluded:
        return {name: missing(trouble, meter.gives[name])}
    return {key: row.noted(trouble) for key, row in concluded.items()}
