"""How real counterfactuals look: FID on split halves, and what real pictures themselves would score."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from fastdime.errors import InputError, expected
from fastdime.metrics.frechet import distance_of
from fastdime.metrics.kernel import kid
from fastdime.metrics.rows import Features, Index, Rows, check_paired, check_repeats, pair, rows


@dataclass(frozen=True)
class Spread:
    """One number from each repetition."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the repetitions; NaN if one of them is."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        """Standard deviation of the repetitions; NaN for one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else float("nan")


@dataclass(frozen=True)
class Floor:
    """FID and KID of real pictures against other real pictures, in sets of one size."""

    size: int
    fid: Spread
    kid: Spread


def sfid(
    real: Features,
    fake: Features,
    valid: np.ndarray | None = None,
    *,
    repeats: int = 10,
    seed: int = 0,
) -> Spread:
    """Return FID between pictures and the counterfactuals of other pictures.

    The pictures are shuffled and split in halves; FID of each half against the counterfactuals of the other
    is taken, and the two averaged. This takes away the gain of being nearly the same picture.

    Args:
        fake: row i is the counterfactual of row i of `real`.
        valid: true for each counterfactual that counts; None = all do.

    Returns:
        One value a shuffle; NaN where a half has fewer than two rows.

    >>> x = np.random.default_rng(0).normal(size=(400, 3))
    >>> round(sfid(x, x + 1, repeats=3).mean, 1)
    3.1
    """
    first, second = pair(real, fake)
    check_paired(first, second)
    check_repeats(repeats)
    counts = _mask(valid, len(first))
    rng = np.random.default_rng(seed)
    return Spread(tuple(_halves(first, second, counts, rng) for _ in range(repeats)))


def _mask(valid: np.ndarray | None, n: int) -> Bool[np.ndarray, " n"]:
    if valid is None:
        return np.ones(n, dtype=bool)
    mask = np.asarray(valid)
    if mask.shape != (n,) or mask.dtype != bool:
        wanted = f"true or false for each of {n} pictures"
        raise InputError(expected("valid", wanted, f"{mask.dtype} of shape {mask.shape}"))
    return mask


def _halves(real: Rows, fake: Rows, valid: Bool[np.ndarray, " n"], rng: np.random.Generator) -> float:
    order, half = rng.permutation(len(real)), len(real) // 2
    # As published: of an odd number one picture, in the middle of the shuffle, is in neither half.
    one, other = np.sort(order[len(real) - half :]), np.sort(order[:half])
    there = distance_of(real, fake, one, other[valid[other]])
    back = distance_of(real, fake, other, one[valid[one]])
    return (there + back) / 2


def floor(real: Features, n: int, *, repeats: int = 10, seed: int = 0) -> Floor:
    """Return FID and KID of disjoint random sets of real pictures: no method can be asked for less.

    Args:
        n: rows of a set; at most half of the pictures are taken.

    >>> floor(np.random.default_rng(0).normal(size=(100, 3)), 80, repeats=2).size
    50
    """
    found = rows(real, "real features")
    check_repeats(repeats)
    if n < 1:
        raise InputError(expected("n of the floor", "a number >= 1", n))
    size = min(n, len(found) // 2)
    rng = np.random.default_rng(seed)
    draws = [_disjoint(len(found), size, rng) for _ in range(repeats)]
    return Floor(
        size,
        Spread(tuple(distance_of(found, found, one, other) for one, other in draws)),
        Spread(tuple(kid(found[one], found[other]).value for one, other in draws)),
    )


def _disjoint(count: int, size: int, rng: np.random.Generator) -> tuple[Index, Index]:
    order = rng.permutation(count)
    return np.sort(order[:size]), np.sort(order[size : 2 * size])
