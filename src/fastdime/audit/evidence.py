"""Is there an effect: p-values that need no bell curve, and the correction for asking many questions."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from fastdime.errors import InputError, expected, unknown
from fastdime.metrics.clusters import clusters
from fastdime.metrics.numbers import Groups, Numbers, as_numbers, check_equal_length

Alternative = Literal["two-sided", "greater"]
EXACT = 14  # clusters, up to which all 2^14 flips are tried
CHUNK = 1 << 20  # drawn signs held at once
SLACK = 1e-9  # of sums that are equal but for rounding


def sign_flip(
    values: ArrayLike,
    groups: Groups | None = None,
    *,
    alternative: Alternative = "two-sided",
    resamples: int = 9999,
    seed: int = 0,
) -> float:
    """Return the p-value of "the values lie evenly around zero", by flipping signs.

    All flips are tried for up to 14 clusters, otherwise as many as `resamples` says. The values of a group
    flip together. Nothing but zeros, and no values at all, give 1.

    Args:
        values: one difference an image, such as the effect minus that of the placebo.
        alternative: greater: only a mean above zero speaks against it.

    >>> sign_flip([1.0, 2.0, 3.0, 4.0, 5.0]), sign_flip([1.0, 2.0, 3.0, 4.0, 5.0], alternative="greater")
    (0.0625, 0.03125)
    """
    if alternative not in ("two-sided", "greater"):
        raise InputError(unknown("alternative", alternative, ("two-sided", "greater")))
    if resamples < 1:
        raise InputError(expected("resamples", "a whole number >= 1", resamples))
    sums = clusters(values, groups).sums
    if not sums.any():
        return 1.0
    sums = sums / np.abs(sums).max()  # so that the slack has one meaning
    exact = len(sums) <= EXACT
    flipped = _all_flips(sums) if exact else _some_flips(sums, resamples, np.random.default_rng(seed))
    found = sums.sum()
    if alternative == "two-sided":
        found, flipped = abs(found), np.abs(flipped)
    reached = int((flipped >= found - SLACK).sum())
    # The data as they are count as one of the draws: a p-value of 0 would claim too much.
    return reached / len(flipped) if exact else (reached + 1) / (resamples + 1)


def _all_flips(sums: Float64[np.ndarray, " g"]) -> Float64[np.ndarray, " r"]:
    places = np.arange(len(sums))
    signs = 2.0 * (np.arange(1 << len(sums))[:, None] >> places & 1) - 1  # the bits of all numbers
    flipped: Numbers = signs @ sums
    return flipped


def _some_flips(
    sums: Float64[np.ndarray, " g"], resamples: int, rng: np.random.Generator
) -> Float64[np.ndarray, " r"]:
    rows = max(1, CHUNK // len(sums))
    sizes = [min(rows, resamples - first) for first in range(0, resamples, rows)]
    # A sum of all with a sign is twice the sum of those that stay, minus the sum of all.
    kept = [rng.integers(0, 2, (size, len(sums)), dtype=np.int8).astype(np.float64) @ sums for size in sizes]
    flipped: Numbers = 2 * np.concatenate(kept) - sums.sum()
    return flipped


def wilcoxon(
    values: ArrayLike, groups: Groups | None = None, *, alternative: Alternative = "two-sided"
) -> float:
    """Return the p-value of the signed-rank test, on the means of the groups; nothing but zeros give 1.

    >>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    """
    from scipy import stats

    found = clusters(values, groups)
    means = found.sums / found.counts
    if not means.any():
        return 1.0
    return float(stats.wilcoxon(means, alternative=alternative).pvalue)


@dataclass(frozen=True)
class Flips:
    """Decisions that changed, and the p-value of "as many one way as the other"."""

    to_one: int
    to_zero: int
    p: float


def mcnemar(before: ArrayLike, after: ArrayLike, groups: Groups | None = None) -> Flips:
    """Compare the decisions (0 or 1) about the same images: the exact test of McNemar.

    Args:
        groups: with groups, whose decisions flip together, signs of whole groups are flipped instead.

    >>> mcnemar([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0])
    Flips(to_one=0, to_zero=5, p=0.0625)
    """
    first, second = _decisions("before", before), _decisions("after", after)
    check_equal_length("before and after", first, second)
    change = second - first
    to_one, to_zero = int((change > 0).sum()), int((change < 0).sum())
    if groups is not None:
        return Flips(to_one, to_zero, sign_flip(change, groups))
    if to_one + to_zero == 0:
        return Flips(0, 0, 1.0)
    from scipy import stats

    return Flips(to_one, to_zero, float(stats.binomtest(to_one, to_one + to_zero).pvalue))


def _decisions(what: str, values: ArrayLike) -> Numbers:
    numbers = as_numbers(what, values)
    if other := sorted(set(numbers.tolist()) - {0.0, 1.0}):
        raise InputError(expected(what, "decisions of 0 or 1", other[0], "compare probabilities with 0.5"))
    return numbers


def holm(p_values: ArrayLike) -> Float64[np.ndarray, " m"]:
    """Adjust p-values so that one false claim among all is as rare as one was alone (Holm 1979).

    >>> holm([0.01, 0.04, 0.03]).round(2)
    array([0.03, 0.06, 0.06])
    """
    numbers = as_numbers("p-values", p_values)
    if len(numbers) and (numbers.min() < 0 or numbers.max() > 1):
        outside = numbers[(numbers < 0) | (numbers > 1)][0]
        raise InputError(expected("p-values", "numbers from 0 to 1", outside))
    order = np.argsort(numbers, kind="stable")
    stepped = np.maximum.accumulate(numbers[order] * np.arange(len(numbers), 0, -1))
    adjusted = np.empty_like(numbers)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted
