"""How large is an effect, is it small enough to be of no matter, and how small a one could be seen."""

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from fastdime.audit.evidence import Alternative
from fastdime.errors import InputError, expected, unknown
from fastdime.metrics.clusters import Clusters, clusters
from fastdime.metrics.numbers import NAN, Groups, as_numbers
from fastdime.metrics.statistics import Estimate, mean_interval

QUANTILES = 4000  # of the spread, over which power is averaged


def effect_size(values: ArrayLike, groups: Groups | None = None) -> float:
    """Return d_z: the mean of paired differences in units of their spread, over the means of groups.

    NaN where there is no spread, or fewer than two groups.

    >>> effect_size([1.0, 2.0, 3.0])
    2.0
    """
    found = clusters(values, groups)
    means = found.sums / found.counts
    if len(means) < 2 or np.ptp(means) == 0:
        return NAN
    return float(means.mean() / means.std(ddof=1))


def cliffs_delta(a: ArrayLike, b: ArrayLike) -> float:
    """Return how much more often a value of b is above one of a than below; from -1 to 1, NaN without values.

    >>> cliffs_delta([1.0, 2.0], [2.0, 3.0])
    0.75
    """
    x, y = np.sort(as_numbers("a", a)), as_numbers("b", b)
    if not len(x) or not len(y):
        return NAN
    below = np.searchsorted(x, y, side="left").sum()
    above = (len(x) - np.searchsorted(x, y, side="right")).sum()
    return float((below - above) / (len(x) * len(y)))


def equivalence(values: ArrayLike, margin: float, groups: Groups | None = None) -> float:
    """Return the p-value of "the mean is not between -margin and margin": two one-sided t-tests (TOST).

    A small one lets one claim that there is no effect beyond the margin. Groups enter the standard error.
    NaN with fewer than two groups or without spread, where nothing can be claimed.

    >>> round(equivalence([0.01, -0.02, 0.0, 0.02, -0.01], 0.1), 4)
    0.0001
    """
    check_margin(margin)
    return equivalence_of(clusters(values, groups), margin)


def equivalence_of(found: Clusters, margin: float) -> float:
    """Return what `equivalence` does, for values that are summed already."""
    from scipy import stats

    error = found.error
    if not error > 0:
        return NAN
    return float(stats.t.sf((margin - abs(found.mean)) / error, len(found) - 1))


def equivalence_interval(
    values: ArrayLike,
    margin: float,
    groups: Groups | None = None,
    *,
    alpha: float = 0.05,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[bool, Estimate]:
    """Tell whether the bootstrap interval of level 1 - 2 alpha lies within the margin, and return it.

    >>> equivalence_interval([0.01, -0.02, 0.0, 0.02, -0.01], 0.1)[0]
    True
    """
    check_margin(margin)
    check_share("alpha", alpha, 0.5)
    found = mean_interval(values, groups, level=1 - 2 * alpha, resamples=resamples, seed=seed)
    return -margin < found.low and found.high < margin, found


def minimum_detectable(
    error: float,
    units: int,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    alternative: Alternative = "two-sided",
) -> float:
    """Return the smallest true mean that a t-test would find in a share `power` of all audits like this one.

    Args:
        error: standard error of the mean, `clusters(values, groups).error`; for another n, spread / sqrt(n).
        units: patients, or images where each has its own; with fewer than two the answer is NaN.

    >>> round(minimum_detectable(1 / 34**0.5, 34), 3)
    0.495
    """
    check_share("alpha", alpha, 1)
    check_share("power", power, 1)
    if power <= alpha:
        raise InputError(expected("power", f"more than alpha = {alpha:g}", power))
    if alternative not in ("two-sided", "greater"):
        raise InputError(unknown("alternative", alternative, ("two-sided", "greater")))
    if units < 2 or math.isnan(error):
        return NAN
    return error * _shift(units - 1, alpha, power, alternative == "two-sided")


@cache
def _shift(freedom: int, alpha: float, power: float, two_sided: bool) -> float:
    """Return how many standard errors from zero the truth must be."""
    from scipy import optimize, special

    edge = float(special.stdtrit(freedom, 1 - (alpha / 2 if two_sided else alpha)))
    # The noncentral t of scipy is NaN in places. Given the spread that is found, t is a bell curve: average
    # that over the quantiles of the spread.
    quantiles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    spreads = np.sqrt(special.chdtri(freedom, quantiles) / freedom)

    def lacking(shift: float) -> float:
        other_way = special.ndtr(-edge * spreads - shift).mean() if two_sided else 0.0
        return float(special.ndtr(shift - edge * spreads).mean() + other_way) - power

    top = 1.0
    while lacking(top) < 0:
        top *= 2
    return float(optimize.brentq(lacking, 0.0, top))


def check_margin(margin: float) -> None:
    """Refuse a margin that no effect could lie within."""
    if not 0 < margin < math.inf:
        raise InputError(expected("margin", "a number above 0", margin))


def check_share(what: str, share: float, most: float) -> None:
    """Refuse a number outside (0, most)."""
    if not 0 < share < most:
        raise InputError(expected(what, f"a number between 0 and {most:g}", share))
