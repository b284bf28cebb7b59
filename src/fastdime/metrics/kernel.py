"""Kernel distance of two sets of features (KID): unbiased, so it is fair for few images too."""

from dataclasses import dataclass
from math import nan
from statistics import NormalDist
from typing import Any

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
    made_from: Index | None = None,
    most: int = MOST,
    seed: int = 0,
    level: float = 0.95,
) -> KernelDistance:
    """Return the squared maximum mean discrepancy with the kernel (x.y / d + 1)³, and its interval.

    The interval is that of the jackknife. It can reach below 0, and so can the value: both are unbiased.

    Args:
        paired: row i of `fake` is the counterfactual of row i of `real`. The two are no independent draws, so
            their kernel is left out; with few pairs the distance would come out too small.
        made_from: the same where not every picture has one: for each row of `fake`, its row of `real`.
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
        made_from = np.arange(len(first))
    if made_from is not None:
        _check_origins(made_from, len(first), len(second))
    if min(len(first), len(second)) < 2:
        return KernelDistance(nan, nan, nan)
    rng = np.random.default_rng(seed)
    one = _drawn(len(first), most, rng)
    if made_from is None:
        value, error = _unpaired(_sums(first, second, one, _drawn(len(second), most, rng)))
    else:
        other = np.flatnonzero(np.isin(made_from, one))
        if len(other) < 2:  # by chance, of very few
            return KernelDistance(nan, nan, nan)
        origin = np.searchsorted(one, made_from[other])
        value, error = _of_subjects(_sums(first, second, one, other, origin), origin)
    reach = NormalDist().inv_cdf((1 + level) / 2) * error
    return KernelDistance(value, value - reach, value + reach)


def _drawn(count: int, most: int, rng: np.random.Generator) -> Index:
    # Sorted, because a file is read faster in order.
    return np.sort(rng.choice(count, most, replace=False)) if count > most else np.arange(count)


def _check_origins(made_from: Index, real: int, fake: int) -> None:
    known = made_from.shape == (fake,) and len(np.unique(made_from)) == fake
    if not known or (fake and not 0 <= made_from.min() <= made_from.max() < real):
        wanted = f"another row of the {real} real ones for each of {fake} fake ones"
        raise InputError(expected("made_from", wanted, f"shape {made_from.shape}"))


def _sums(real: Rows, fake: Rows, one: Index, other: Index, origin: Index | None = None) -> _Sums:
    a, b = taken(real, one), taken(fake, other)
    across, back = _kernel_sums(a, b)
    own = np.empty(0) if origin is None else _kernel(np.einsum("nd,nd->n", a[origin], b), a.shape[1])
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


def _of_subjects(sums: _Sums, origin: Index) -> tuple[float, float]:
    """Value and standard error by leaving out one picture at a time, and its counterfactual if it has one."""
    n, m = len(sums.real), len(sums.fake)
    made = np.zeros(n)
    fake, across = made.copy(), sums.real_fake.copy()  # what goes when a picture does
    made[origin], fake[origin] = 1, sums.fake
    across[origin] += sums.fake_real - 2 * sums.own
    totals = sums.real.sum(), sums.fake.sum(), sums.real_fake.sum() - sums.own.sum()
    value = _distance(*totals, n, m, n * m - m)
    left = m - made
    if n < 3 or left.min() < 2:
        return float(value), nan
    pairs = (n - 1) * left - left
    rest = totals[0] - 2 * sums.real, totals[1] - 2 * fake, totals[2] - across
    without = _distance(*rest, n - 1, left, pairs)
    return float(value), float(np.sqrt(_jackknife(without)))


def _distance(real: Any, fake: Any, across: Any, n: Any, m: Any, pairs: Any) -> Any:
    """Combine sums of the kernel over pairs of each kind; for numbers and for arrays of them."""
    return real / (n * (n - 1)) + fake / (m * (m - 1)) - 2 * across / pairs


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
