"""Does the effect grow with the dose: over k with several trained networks each, or over edit strengths.

The values must be independent, one for each trained network. Where the same images give a value at each dose,
take a slope for each image instead, and ask `sign_flip` about the slopes.
"""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from fastdime.audit.evidence import Alternative
from fastdime.errors import InputError, expected, unknown
from fastdime.metrics.numbers import NAN, Numbers, as_numbers, check_equal_length

EXACT = 7  # values, up to which all orders are tried
MOST_DRAWN = 60  # values, above which the bell curve is near enough


@dataclass(frozen=True)
class Trend:
    """Jonckheere and Terpstra's test.

    Attributes:
        statistic: pairs of values at different doses where the one at the higher dose is larger; ties half.
        pairs: how many pairs there are at different doses.
        p: of "the dose makes no difference".
    """

    statistic: float
    pairs: int
    p: float


def trend(
    doses: ArrayLike,
    values: ArrayLike,
    *,
    alternative: Alternative = "greater",
    resamples: int = 9999,
    seed: int = 0,
) -> Trend:
    """Test whether values rise with the dose.

    All orders of up to 7 values are tried, some drawn at random for up to 60; above it p is from the bell
    curve with ties accounted for. Values that are all equal give p = 1.

    Raises:
        InputError: fewer than two different doses.

    >>> trend([50, 50, 75, 75, 100, 100], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    Trend(statistic=12.0, pairs=12, p=0.011111111111111112)
    """
    if alternative not in ("two-sided", "greater"):
        raise InputError(unknown("alternative", alternative, ("two-sided", "greater")))
    if resamples < 1:
        raise InputError(expected("resamples", "a whole number >= 1", resamples))
    x, y = _paired(doses, values)
    order = np.lexsort((y, x))  # the order of rows leaves no trace
    x, y = x[order], y[order]
    pairs, score = _score(x, y)
    statistic = (pairs + score) / 2
    if np.ptp(y) == 0:
        return Trend(statistic, pairs, 1.0)
    if len(x) > MOST_DRAWN:
        return Trend(statistic, pairs, _bell(x, y, alternative))
    shuffled = _shuffled(_signs(x), _signs(y), resamples, np.random.default_rng(seed))
    return Trend(statistic, pairs, _reached(shuffled, score, alternative, exact=len(x) <= EXACT))


def _paired(doses: ArrayLike, values: ArrayLike) -> tuple[Numbers, Numbers]:
    x, y = as_numbers("doses", doses), as_numbers("values", values)
    check_equal_length("doses and values", x, y)
    if len(np.unique(x)) < 2:
        raise InputError(expected("doses", "two or more different ones", len(np.unique(x)), "add another k"))
    return x, y


def _score(x: Numbers, y: Numbers) -> tuple[int, int]:
    """Return the pairs at different doses, and how many more of them rise than fall."""
    pairs, score = 0, 0.0
    for row in range(len(x) - 1):  # all pairs at once would need much memory
        rises = np.sign(x[row + 1 :] - x[row])
        pairs += int(np.count_nonzero(rises))
        score += float(rises @ np.sign(y[row + 1 :] - y[row]))
    return pairs, round(score)


def _signs(numbers: Float64[np.ndarray, " n"]) -> Int64[np.ndarray, "n n"]:
    signs: Int64[np.ndarray, "n n"] = np.sign(numbers[:, None] - numbers[None, :]).astype(np.int64)
    return signs


def _shuffled(
    rises: Int64[np.ndarray, "n n"],
    moves: Int64[np.ndarray, "n n"],
    resamples: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, " r"]:
    """Return the score of values in other orders."""
    size = len(moves)
    if size <= EXACT:
        orders = np.array(list(permutations(range(size))))
    else:
        orders = rng.permuted(np.tile(np.arange(size), (resamples, 1)), axis=1)
    low, high = np.nonzero(np.triu(rises))  # pairs at the same dose say nothing
    signs = rises[low, high]
    # In parts, because all orders of all pairs at once would need much memory.
    parts = np.array_split(orders, max(1, len(orders) * len(low) >> 20))
    return np.concatenate([moves[part[:, low], part[:, high]] @ signs for part in parts])


def _reached(shuffled: Int64[np.ndarray, " r"], score: int, alternative: Alternative, exact: bool) -> float:
    two_sided = alternative == "two-sided"
    reached = int((np.abs(shuffled) >= abs(score)).sum() if two_sided else (shuffled >= score).sum())
    return reached / len(shuffled) if exact else (reached + 1) / (len(shuffled) + 1)


def _bell(x: Numbers, y: Numbers, alternative: Alternative) -> float:
    """Kendall's score of dose and value is that of Jonckheere and Terpstra, and has the same variance."""
    from scipy import stats

    return float(stats.kendalltau(x, y, method="asymptotic", alternative=alternative).pvalue)


@dataclass(frozen=True)
class Slope:
    """Change of the value for one unit of dose, with its interval; NaN ends where there is none."""

    value: float
    low: float
    high: float
    n: int


def slope(doses: ArrayLike, values: ArrayLike, *, level: float = 0.95) -> Slope:
    """Return the median of the slopes between all pairs (Theil and Sen), which one wild value cannot spoil.

    >>> slope([50, 75, 100], [0.0, 0.25, 0.5]).value
    0.01
    """
    from scipy import stats

    if not 0 < level < 1:
        raise InputError(expected("level", "a number between 0 and 1", level))
    x, y = _paired(doses, values)
    found = stats.theilslopes(y, x, alpha=level)
    few = len(x) < 3  # one pair has one slope
    low, high = (NAN, NAN) if few else (float(found.low_slope), float(found.high_slope))
    return Slope(float(found.slope), low, high, len(x))
