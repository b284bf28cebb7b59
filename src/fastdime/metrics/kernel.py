"""Kernel distance of two sets of features (KID): unbiased, so it is fair for few images too."""

from dataclasses import dataclass
from math import nan
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from fastdime.errors import InputError, expected
from fastdime.metrics.rows import Features, Index, Rows, check_paired, pair, taken

MOST = 5000  # rows of a set that are looked at: the work grows with their square
BLOCK = 512  # rows whose kernels are in memory at once


@dataclass(frozen=True)
class KernelDistance:
    """A squared distance, and an interval that holds the true one with a given confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class _Sums:
    """Sums of the kernel over the partners of each row: its own kind, the other kind, its counterfactual."""

    real: Float[np.ndarray, " n"]
    fake: Float[np.ndarray, " m"]
    real_fake: Float[np.ndarray, " n"]
    fake_real: Float[np.ndarray, " m"]
    own: Float[np.ndarray, " k"]


def kid(
    real: Features,
    fake: Features,
    *,
    paired: bool = False,
    most: int = MOST,
    seed: int = 0,
    level: float = 0.95,
) -> KernelDistance:
    """Return the squared maximum mean discrepancy with the kernel (x.y / d + 1)³, and its interval.

    The interval is that of the jackknife. It can reach below 0, and so can the value: both are unbiased.

    Args:
        paired: row i of `fake` is the counterfactual of row i of `real`. The two are no independent draws, so
            their kernel is left out; with few pairs the distance would come out too small.
        most: larger sets are represented by so many rows, drawn at random.
        level: confidence of the interval.

    Returns:
        NaN for fewer than two rows; an interval of NaN for fewer than three.

    >>> x = np.random.default_rng(0).normal(size=(100, 4))
    >>> found = kid(x[:50], x[50:])
    >>> found.low < 0 < found.high
    True
    """
    if most < 3 or not 0 < level < 1:
        raise InputError(expected("kid", "most >= 3 and 0 < level < 1", f"{most} and {level}"))
    first, second = pair(real, fake)
    if paired:
        check_paired(first, second)
    if min(len(first), len(second)) < 2:
        return KernelDistance(nan, nan, nan)
    rng = np.random.default_rng(seed)
    one = _drawn(len(first), most, rng)
    other = one if paired else _drawn(len(second), most, rng)
    sums = _sums(first, second, one, other)
    value, error = _paired(sums) if paired else _unpaired(sums)
    reach = NormalDist().inv_cdf((1 + level) / 2) * error
    return KernelDistance(value, value - reach, value + reach)


def _drawn(count: int, most: int, rng: np.random.Generator) -> Index:
    # Sorted, because a file is read faster in order.
    return np.sort(rng.choice(count, most, replace=False)) if count > most else np.arange(count)


def _sums(real: Rows, fake: Rows, one: Index, other: Index) -> _Sums:
    a, b = taken(real, one), taken(fake, other)
    across, back = _kernel_sums(a, b)
    short = min(len(a), len(b))
    own = _kernel(np.einsum("nd,nd->n", a[:short], b[:short]), a.shape[1])
    return _Sums(_others(a), _others(b), across, back, own)


def _kernel(products: Float[np.ndarray, "..."], dim: int) -> Float[np.ndarray, "..."]:
    base = products / dim + 1
    return base * base * base  # a power of 3 takes far longer


def _kernel_sums(
    a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "m d"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " m"]]:
    """Sum the kernel over the rows of the other set, for each row of both."""
    along, down = np.zeros(len(a)), np.zeros(len(b))
    for first in range(0, len(a), BLOCK):
        block = _kernel(a[first : first + BLOCK] @ b.T, a.shape[1])
        along[first : first + BLOCK] = block.sum(1)
        down += block.sum(0)
    return along, down


def _others(a: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Sum the kernel over all other rows of the same set, each block of pairs once."""
    total = -_kernel(np.square(a).sum(1), a.shape[1])
    for first in range(0, len(a), BLOCK):
        block = _kernel(a[first : first + BLOCK] @ a[first:].T, a.shape[1])
        total[first : first + BLOCK] += block.sum(1)
        total[first + BLOCK :] += block[:, BLOCK:].sum(0)
    return total


def _paired(sums: _Sums) -> tuple[float, float]:
    """Value and standard error of a U-statistic of pairs, by leaving out one pair at a time."""
    each = sums.real + sums.fake - sums.real_fake - sums.fake_real + 2 * sums.own
    n = len(each)
    value = each.sum() / (n * (n - 1))
    if n < 3:
        return float(value), nan
    without = (each.sum() - 2 * each) / ((n - 1) * (n - 2))
    return float(value), float(np.sqrt(_jackknife(without)))


def _unpaired(sums: _Sums) -> tuple[float, float]:
    """Value and standard error, by leaving out one row of one set at a time."""
    n, m = len(sums.real), len(sums.fake)
    within, beside, across = sums.real.sum(), sums.fake.sum(), sums.real_fake.sum()
    own, other = within / (n * (n - 1)), beside / (m * (m - 1))
    value = own + other - 2 * across / (n * m)
    if min(n, m) < 3:
        return float(value), nan
    real = (within - 2 * sums.real) / ((n - 1) * (n - 2)) - 2 * (across - sums.real_fake) / ((n - 1) * m)
    fake = (beside - 2 * sums.fake) / ((m - 1) * (m - 2)) - 2 * (across - sums.fake_real) / (n * (m - 1))
    # What does not change when a row is left out does not matter to the spread.
    return float(value), float(np.sqrt(_jackknife(real) + _jackknife(fake)))


def _jackknife(without: Float[np.ndarray, " n"]) -> float:
    """Variance of a statistic from its values with each row left out in turn."""
    n = len(without)
    return float(np.square(without - without.mean()).sum() * (n - 1) / n)
