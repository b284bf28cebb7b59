"""Is the generator to be trusted: did the shortcut go or come, what else changed, does it pass its tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdime.audit.answers import EDIT, ORIGINAL
from fastdime.audit.effects import Numbers
from fastdime.audit.pictures import BACK, NULL, TRUTH, Album
from fastdime.audit.schema import Compliance, Interval, SelfTest
from fastdime.metrics.closeness import changed_area, l1
from fastdime.metrics.statistics import mean_interval
from fastdime.pipeline.options import network_of
from fastdime.scores import log_odds, probabilities
from fastdime.types import Classifier

SEEN = 0.02  # a pixel that changes by more, on the scale from 0 to 1, has changed for a person
NULL_LIMIT = (
    0.06  # largest mean change of a pixel by a chain without guidance; it takes the image's own noise away
)
Judge = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Oracle:
    """Who says whether the shortcut shows; `independent` unless it guided the edits itself."""

    name: str
    classifier: Classifier
    independent: bool


def complied(album: Album, oracle: Oracle, has: Numbers) -> Numbers:
    """Return 1 for each image in whose edit the oracle sees the shortcut gone, or come; 0 otherwise."""
    sees = asked(album, EDIT, lambda x: _odds(oracle.classifier, x) > 0)
    agrees: Numbers = (sees == 1 - has).astype(np.float64)
    return agrees


def compliance(oracle: Oracle, found: Numbers, has: Numbers, groups: list[str] | None) -> Compliance:
    """Count how often the shortcut went, and how often it came."""
    removed, added = (_mean(found, has == shown, groups) for shown in (1, 0))
    return Compliance(oracle=oracle.name, independent=oracle.independent, removed=removed, added=added)


def collateral(
    album: Album, others: Mapping[str, Classifier], groups: list[str] | None
) -> dict[str, Interval]:
    """Tell what else the edits change: pixels, their area, and the answers of other oracles."""
    everywhere = np.ones(len(album.ids), dtype=bool)
    found = _pixels(album)
    for name, other in others.items():
        judge = partial(_chance, other)
        before, after = (asked(album, kind, judge) for kind in (ORIGINAL, EDIT))
        found[f"{name}_oracle"] = np.abs(after - before)
    return {name: _mean(values, everywhere, groups) for name, values in found.items()}


def _pixels(album: Album) -> dict[str, Numbers]:
    """Return how much of each image changes, in all and where nothing should; NaN if that is nowhere."""
    names = ("change", "changed_area", "change_outside_mask", "change_outside_truth")
    found = {name: np.full(len(album.ids), np.nan) for name in names}
    exact = set(album.rows_with(TRUTH))
    for rows, x_cf in album.batches(EDIT):
        x = album.stack(ORIGINAL, rows)
        found["change"][rows], found["changed_area"][rows] = l1(x, x_cf), changed_area(x, x_cf, SEEN)
        for row, before, after in zip(rows, x, x_cf, strict=True):
            found["change_outside_mask"][row] = _outside(before, after, album.mask(row))
            if row in exact:
                region = (album.read(TRUTH, row) != before).any(0, keepdim=True)
                found["change_outside_truth"][row] = _outside(before, after, region)
    return {name: values for name, values in found.items() if not np.isnan(values).all()}


def _outside(x: Tensor, x_cf: Tensor, region: Tensor) -> float:
    """Return the mean change of pixels outside of a region, on the scale from 0 to 1."""
    return float((x_cf - x).abs().mean(0, keepdim=True)[~region].mean()) / 2


def asked(album: Album, kind: str, judge: Judge) -> Numbers:
    """Ask about all pictures of a kind; NaN where there is none."""
    answers = np.full(len(album.ids), np.nan)
    with torch.no_grad():
        for rows, x in album.batches(kind):
            answers[rows] = judge(x).double().cpu().numpy()
    return answers


def self_tests(album: Album, has: Numbers | None = None) -> tuple[SelfTest, ...]:
    """Test the generator on what it should leave alone.

    Args:
        has: whether each original shows the shortcut. What was removed cannot come back the same, so the way
            back is only tested where it was added first; without labels, everywhere.
    """
    tests = []
    if rows := album.rows_with(NULL):
        text = "the chain without guidance returns the image (mean change of a pixel, 0 to 1)"
        tests.append(_test("null edit", _difference(album, NULL, rows), NULL_LIMIT, text))
    if rows := [row for row in album.rows_with(BACK) if has is None or not has[row]]:
        text = "add then remove returns nearer to the image than the edit was (mean change of a pixel)"
        there = _difference(album, EDIT, rows)
        tests.append(_test("way back", _difference(album, BACK, rows), there, text))
    return tuple(tests)


def _test(name: str, value: float, limit: float, text: str) -> SelfTest:
    return SelfTest(name=name, passed=value <= limit, value=round(value, 5), limit=round(limit, 5), text=text)


def _difference(album: Album, kind: str, rows: list[int]) -> float:
    """Return the mean difference of some pictures from their originals."""
    parts = [l1(album.stack(kind, [row]), album.stack(ORIGINAL, [row])) for row in rows]
    return float(torch.cat(parts).mean())


def _mean(values: Numbers, where: NDArray[np.bool_], groups: list[str] | None) -> Interval:
    shown = where & ~np.isnan(values)
    chosen = None if groups is None else [group for group, kept in zip(groups, shown, strict=True) if kept]
    return Interval.of(mean_interval(values[shown], chosen))


def _odds(classifier: Classifier, x: Tensor) -> Tensor:
    logits = _logits(classifier, x)
    return log_odds(logits, torch.ones(len(x), dtype=torch.int64, device=logits.device))


def _chance(classifier: Classifier, x: Tensor) -> Tensor:
    return probabilities(_logits(classifier, x))[:, 1]


def _logits(classifier: Classifier, x: Tensor) -> Tensor:
    network = network_of(classifier)
    weight = None if network is None else next(network.parameters(), None)
    there = x if weight is None else x.to(weight.device)  # the guide is where the edits were made
    return classifier.logits(there, torch.zeros(len(x), dtype=torch.int64, device=there.device))
