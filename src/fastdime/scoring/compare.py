"""Several runs side by side: each against the first, image by image."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdime.errors import InputError, expected
from fastdime.metrics.numbers import NAN
from fastdime.metrics.statistics import Estimate, paired_difference
from fastdime.scoring import rows
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import Row, as_json, interval
from fastdime.scoring.score import Scores

TEXTS = ("run", *rows.TEXTS, "its 95 %")
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
        cells = {"metric": self.metric, "run": self.run, **self.row.told(self.metric)}
        found = self.difference or NOTHING
        apart = {"difference": found.value, "its 95 %": interval(found.low, found.high), "common": found.n}
        return cells | (apart if found.n else dict.fromkeys(apart))


def compare(runs: Sequence[Scores], request: ScoreRequest | None = None) -> list[Line]:
    """List every metric of every run, with paired differences from the first run.

    Images count that have a value in both runs; for metrics over valid counterfactuals, that are valid in
    both. Metrics of whole sets, such as FID, have no value for an image, and so no difference.

    Raises:
        InputError: a run has no image in common with the first.
    """
    request, first = request or ScoreRequest(), runs[0]
    for scores in runs[1:]:
        if set(scores.ids).isdisjoint(first.ids):
            got = " and ".join(f"{some.ids[0]!r} ... in {some.source}" for some in (first, scores))
            raise InputError(expected("runs to compare", "images of the same ids", got))
    lines = []
    for metric in dict.fromkeys(name for scores in runs for name in scores.rows):
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
    found = paired_difference(before, after, groups, resamples=request.resamples, seed=request.seed)
    # Where all images differ alike a bootstrap has no width, which is not the same as being sure.
    return replace(found, low=NAN, high=NAN) if found.low == found.high != 0 else found


def _kept(metric: str, scores: Scores) -> dict[str, float]:
    """Return the values that a metric is averaged over, by id."""
    column = scores.values[metric]
    try:
        rows = scores.standing.pairs(metric).rows & ~np.isnan(column)
    except InputError:
        return {}
    return {scores.ids[row]: float(column[row]) for row in np.flatnonzero(rows)}
