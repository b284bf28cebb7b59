"""Several runs side by side: each against the first, image by image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdime.errors import InputError
from fastdime.metrics.numbers import NAN
from fastdime.metrics.statistics import Estimate, paired_difference
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import Row, as_json, interval
from fastdime.scoring.score import Scores

NOTHING = Estimate(NAN, NAN, NAN, 0, 0)


@dataclass(frozen=True)
class Line:
    """One metric of one run.

    Attributes:
        row: the score of the run by itself.
        difference: this run minus the first, over the images that both are scored on; none for the first.
    """

    metric: str
    run: str
    row: Row
    difference: Estimate | None = None

    def plain(self) -> dict[str, Any]:
        """Return what is printed as JSON."""
        told = {"metric": self.metric, "run": self.run, **self.row.plain()}
        found = self.difference or NOTHING
        numbers = {"difference": found.value, "difference_low": found.low, "difference_high": found.high}
        return told | {name: as_json(value) for name, value in numbers.items()} | {"common": found.n}

    def told(self) -> dict[str, object]:
        """Return the cells of the printed table."""
        cells: dict[str, object] = {
            "metric": self.metric,
            "run": self.run,
            "value": self.row.shown,
            "95 %": self.row.interval,
        }
        found = self.difference
        if found is None or not found.n:
            return cells | {"difference": None, "of it 95 %": None, "n": self.row.n}
        return cells | {
            "difference": found.value,
            "of it 95 %": interval(found.low, found.high),
            "n": found.n,
        }


def compare(runs: Sequence[Scores], request: ScoreRequest | None = None) -> list[Line]:
    """List every metric of every run, with paired differences from the first run.

    Images count that have a value in both runs; for metrics over valid counterfactuals, that are valid in
    both. Metrics of whole sets, such as FID, have no value for an image, and so no difference.
    """
    request, first = request or ScoreRequest(), runs[0]
    lines = []
    for metric in first.rows:
        for scores in runs:
            if metric not in scores.rows:
                continue
            difference = None if scores is first else _difference(metric, first, scores, request)
            lines.append(Line(metric, scores.source, scores.rows[metric], difference))
    return lines


def _difference(metric: str, first: Scores, second: Scores, request: ScoreRequest) -> Estimate:
    if metric not in first.values or metric not in second.values:
        return NOTHING
    mine, theirs = _kept(metric, first), _kept(metric, second)
    common = [name for name in mine if name in theirs]
    groups = None
    if first.groups is not None:
        known = dict(zip(first.ids, first.groups, strict=True))
        groups = [known[name] for name in common]
    before, after = ([part[name] for name in common] for part in (mine, theirs))
    return paired_difference(before, after, groups, resamples=request.resamples, seed=request.seed)


def _kept(metric: str, scores: Scores) -> dict[str, float]:
    """Return the values that a metric is averaged over, by id."""
    column = scores.values[metric]
    try:
        rows = scores.standing.pairs(metric).rows & ~np.isnan(column)
    except InputError:
        return {}
    return {scores.ids[row]: float(column[row]) for row in np.flatnonzero(rows)}
