"""The scores of one run, as a row: every metric that applies, and where it helps each direction apart."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastdime.bundles import ORACLES, Bundle
from fastdime.experiments.paper.experiment import Plan, Row, Source
from fastdime.experiments.truth import DIRECTIONS
from fastdime.features.registry import LITE
from fastdime.pipeline.pairs import Pairs, pairs_of_run
from fastdime.pipeline.summary import summarise
from fastdime.scoring.catalogue import METRICS
from fastdime.scoring.feature_meters import SETS
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import NAN
from fastdime.scoring.score import Scores, score

ORACLE = "shortcut"
DIGITS = 5
FEWEST = 10  # valid pairs that FID and the like are told of; between smaller sets they are mostly chance
TOO_FEW = "too few to compare sets"
# What is told of removals and of additions too.
APART = (
    "fr",
    "mad",
    "l1",
    "oracle_flip",
    "complete_flip",
    "region_error_ratio",
    "outside_change",
)
# What is printed, beside what the paper has; the file has everything.
PRINTED = ("fr", "mad", "l1", "fid", "kid", "oracle_flip", "region_error_ratio", "outside_change")
COSTS = ("seconds_per_image", "denoiser_calls", "gradient_calls")


def scores_of(run: Path, source: Source, labels: Path, bundle: Bundle, plan: Plan) -> Row:
    """Score a run.

    Args:
        labels: table of the source.
    """
    pairs = pairs_of_run(run)
    request = ScoreRequest(
        features=plan.features or _features(source, bundle),
        labels=labels,
        shortcut=source.shortcut,
        truth=labels.parent if source.exact else None,
        device=plan.device,
    )
    found = _without_chance(score(pairs, request))
    row = _numbers(found) | _apart(found, pairs) | {"first_try": _first_try(pairs)}
    if not source.exact and ORACLE in bundle.oracles:
        row |= _by_oracle(pairs, bundle, plan)
    summary = summarise(run)
    costs = {name: _rounded(getattr(summary, name)) for name in COSTS}
    warnings = {name: told.warning for name, told in found.rows.items() if told.warning}
    return row | costs | {"failed": summary.errors, "warnings": warnings}


def _features(source: Source, bundle: Bundle) -> str:
    """Phantoms are drawings, which ImageNet has none of: their own oracle sees more in them."""
    return f"{source.bundle}/{ORACLE}" if source.exact and ORACLE in bundle.oracles else LITE


def _without_chance(found: Scores) -> Scores:
    """Take the numbers from distances of sets that are too small, and say why there are none."""
    rows = dict(found.rows)
    for name, told in found.rows.items():
        base = name.removesuffix("_floor")
        if base in SETS and told.shown is not None and (n := found.rows[base].n) < FEWEST:
            reason = f"{n} pairs are {TOO_FEW}, which takes {FEWEST}"
            rows[name] = replace(told, value=NAN, low=NAN, high=NAN, warning=reason)
    return replace(found, rows=rows)


def _numbers(found: Scores) -> Row:
    """Return each metric, with its interval where it has one."""
    row: Row = {}
    for name, told in found.rows.items():
        row[name] = _rounded(told.value)
        if not math.isnan(told.low):
            row |= {f"{name}_low": _rounded(told.low), f"{name}_high": _rounded(told.high)}
    return row


def _apart(found: Scores, pairs: Pairs) -> Row:
    """Return the means over removals and over additions, over the same pairs as the mean of both."""
    target = np.array([record["target"] for record in pairs.records])
    row: Row = {f"n_{way}": int((target == wanted).sum()) for wanted, way in enumerate(DIRECTIONS)}
    for name in (name for name in APART if name in found.values):
        column, counted = found.values[name], found.standing.pairs(name).rows
        for wanted, way in enumerate(DIRECTIONS):
            values = column[counted & (target == wanted) & ~np.isnan(column)]
            row[f"{name}_{way}"] = _rounded(float(values.mean())) if len(values) else None
    return row


def _first_try(pairs: Pairs) -> float | None:
    """Return the share of images that reach their target without a second, stronger attempt.

    Strengths are tried in turn until one is enough, so a method can pay for what it lacks with strength.
    """
    weakest = pairs.config["settings"]["scales"][0]
    reached = [record["valid"] and record["scale"] <= weakest for record in pairs.records]
    return _rounded(sum(reached) / len(reached))


def _by_oracle(pairs: Pairs, bundle: Bundle, plan: Plan) -> Row:
    """Ask a network that had no part in making counterfactuals, where no truth can be asked."""
    oracle = str(bundle.folder / ORACLES / ORACLE)
    found = score(pairs, ScoreRequest(metrics=("fr",), classifier=oracle, device=plan.device))
    told = _numbers(found) | _apart(found, pairs)
    return {name.replace("fr", "oracle_flip", 1): value for name, value in told.items() if name[:2] == "fr"}


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, DIGITS)


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns to print: the main metrics and those that the paper has, with its numbers."""
    known = {name for row in rows for name, value in row.items() if value is not None}
    names = [
        column
        for metric in METRICS
        if metric in known and (metric in PRINTED or f"paper_{metric}" in known)
        for column in (metric, f"paper_{metric}")
        if column in known
    ]
    changed = ["changed"] if any(row["changed"] for row in rows) else []
    return ("source", "row", *changed, "n", "first_try", *names, "seconds_per_image")
