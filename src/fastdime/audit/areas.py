"""Whether the AUROC differs between two scores of the same images, such as originals and counterfactuals."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import ArrayLike

from fastdime.audit.sizes import check_share
from fastdime.errors import InputError, expected
from fastdime.metrics.clusters import codes_of
from fastdime.metrics.numbers import NAN, Groups, Numbers, as_numbers, check_equal_length
from fastdime.metrics.statistics import Estimate


@dataclass(frozen=True)
class AurocChange:
    """Two areas, b - a with its interval, and the p-value of "no difference"; NaN where there is none."""

    a: float
    b: float
    difference: Estimate
    p: float


def auroc_change(
    labels: ArrayLike, a: ArrayLike, b: ArrayLike, groups: Groups | None = None, *, level: float = 0.95
) -> AurocChange:
    """Compare the AUROC of two scores of the same images (DeLong 1988; groups as Obuchowski 1997 does).

    Raises:
        InputError: labels other than 0 and 1, or one of them alone.

    >>> change = auroc_change([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.35, 0.8])
    >>> change.a, change.b, change.difference.value
    (0.75, 1.0, 0.25)
    """
    from scipy import stats

    check_share("level", level, 1)
    truth = _truth(labels)
    scores = [as_numbers(name, values) for name, values in (("a", a), ("b", b))]
    for name, numbers in zip(("a", "b"), scores, strict=True):
        check_equal_length(f"labels and {name}", truth, numbers)
    codes = np.arange(len(truth)) if groups is None else codes_of(groups)
    check_equal_length("labels and groups", truth, codes)
    first, second = (_placements(truth, numbers) for numbers in scores)
    areas = [float(places[truth].mean()) for places in (first, second)]
    value, error = areas[1] - areas[0], _error(truth, second - first, codes)
    size = int(codes.max()) + 1
    if math.isnan(error):
        return AurocChange(areas[0], areas[1], Estimate(value, NAN, NAN, len(truth), size), NAN)
    half = float(stats.norm.isf((1 - level) / 2)) * error
    estimate = Estimate(value, max(value - half, -1.0), min(value + half, 1.0), len(truth), size)
    p = float(2 * stats.norm.sf(abs(value) / error)) if error > 0 else float(abs(value) < 1e-12)
    return AurocChange(areas[0], areas[1], estimate, p)


def _truth(labels: ArrayLike) -> Bool[np.ndarray, " n"]:
    numbers = as_numbers("labels", labels)
    found = sorted(set(numbers.tolist()))
    if found != [0.0, 1.0]:
        got = ", ".join(f"{label:g}" for label in found[:5]) or "none"
        raise InputError(expected("labels", "images with 0 and with 1", got, "AUROC needs both"))
    truth: Bool[np.ndarray, " n"] = numbers == 1
    return truth


def _placements(truth: Bool[np.ndarray, " n"], scores: Numbers) -> Float64[np.ndarray, " n"]:
    """Return for each image the share of the other class that it is on the right side of; ties count half."""
    negative, positive = np.sort(scores[~truth]), np.sort(scores[truth])
    places = np.empty(len(scores))
    places[truth] = _share_below(negative, scores[truth])
    places[~truth] = 1 - _share_below(positive, scores[~truth])
    return places


def _share_below(sorted_: Numbers, values: Numbers) -> Numbers:
    both = np.searchsorted(sorted_, values, "left") + np.searchsorted(sorted_, values, "right")
    share: Numbers = both / (2 * len(sorted_))
    return share


def _error(
    truth: Bool[np.ndarray, " n"], places: Float64[np.ndarray, " n"], codes: Int64[np.ndarray, " n"]
) -> float:
    """Return the standard error of a mean placement; NaN where a class has one group alone."""
    parts = np.zeros((2, int(codes.max()) + 1))
    for row, chosen in enumerate((truth, ~truth)):
        size = len(np.unique(codes[chosen]))
        if size < 2:
            return NAN
        off = (places[chosen] - places[chosen].mean()) / chosen.sum()
        # The factor makes it DeLong's where every image is its own group.
        np.add.at(parts[row], codes[chosen], off * math.sqrt(size / (size - 1)))
    return math.sqrt(float((parts.sum(0) ** 2).sum()))
