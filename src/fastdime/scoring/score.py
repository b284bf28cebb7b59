"""Score pairs: one pass over the pictures, then the table."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdime.errors import InputError
from fastdime.metrics.statistics import mean_interval, share_interval
from fastdime.pipeline.pairs import Pairs
from fastdime.scoring.catalogue import METRICS
from fastdime.scoring.equipment import Equipment, equip
from fastdime.scoring.labels import groups_of, read_labels
from fastdime.scoring.meters import Meter
from fastdime.scoring.passing import Column, Progress, Seen, look
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import Row, missing
from fastdime.scoring.standing import Standing


@dataclass(frozen=True)
class Scores:
    """The table of a set of pairs.

    Attributes:
        rows: one for each metric, in the order in which they were asked for.
        values: one number a pair and metric, NaN where there is none.
        groups: the patient of each pair, if known.
        failed: why pairs could not be used.
    """

    source: str
    ids: tuple[str, ...]
    rows: dict[str, Row]
    values: dict[str, Column]
    standing: Standing
    groups: tuple[str, ...] | None = None
    failed: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return what is printed as JSON."""
        return {
            "source": self.source,
            "pairs": int(self.standing.read.sum()),
            "failed": len(self.failed),
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
        seen = look(pairs, equipment, request.batch_size, progress)
        standing = seen.standing(request, equipment)
        averaging = Averaging(standing, groups, request)
        rows = _table(equipment, seen, averaging)
    return Scores(pairs.source, pairs.ids, rows, seen.columns, standing, groups, tuple(seen.failed))


@dataclass(frozen=True)
class Averaging:
    """How one number a pair becomes a mean with its interval."""

    standing: Standing
    groups: tuple[str, ...] | None
    request: ScoreRequest

    def row(self, name: str, column: Column, meter: Meter) -> Row:
        """Average a metric over its pairs."""
        try:
            chosen = self.standing.pairs(name)
        except InputError as error:
            return missing(error, meter.gives[name])
        kept = np.flatnonzero(chosen.rows & ~np.isnan(column))
        groups = None if self.groups is None else [self.groups[row] for row in kept]
        request = self.request
        found = mean_interval(column[kept], groups, resamples=request.resamples, seed=request.seed)
        if METRICS[name].share and found.low == found.high:  # a bootstrap of equal values has no width
            low, high = share_interval(found.value, found.clusters)
            found = replace(found, low=low, high=high)
        without = int(chosen.rows.sum()) - len(kept)
        warning = "; ".join(filter(None, [found.reason, f"{without} pairs have no value" if without else ""]))
        return Row(
            found.value,
            found.low,
            found.high,
            found.n,
            chosen.name,
            meter.gives[name],
            warning,
            meter.more(name, chosen.rows),
        )


def _table(equipment: Equipment, seen: Seen, averaging: Averaging) -> dict[str, Row]:
    rows = {name: missing(reason) for name, reason in equipment.reasons.items()}
    for number, meter in enumerate(equipment.meters):
        mine = [name for name in equipment.wanted if name in meter.gives]
        if number in seen.broken:
            rows |= {name: missing(seen.broken[number], meter.gives[name]) for name in mine}
        else:
            rows |= meter.conclude(mine, averaging.standing)
            rows |= {
                name: averaging.row(name, seen.columns[name], meter) for name in mine if name in seen.columns
            }
    order = [*equipment.wanted, *(name for name in rows if name not in equipment.wanted)]
    return {name: rows[name] for name in order}
