"""Frechet distance of two sets of features (FID), each seen as a Gaussian.

d² = |m1 - m2|² + tr C1 + tr C2 - 2 tr (C1 C2)^½, with covariances of n - 1 degrees of freedom.
With C1 = A'A and C2 = B'B the last trace is the nuclear norm of AB', which needs no root of a matrix.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from jaxtyping import Float

from fastdime.errors import InputError, expected
from fastdime.metrics.rows import Features, Index, Rows, chunks, pair, rows, taken

NOTHING = "features to add"


@dataclass(frozen=True)
class Moments:
    """Mean and scatter of rows, in float64; `update` and `merge` return new ones.

    Attributes:
        n: number of rows.
        mean: of the rows.
        scatter: sum of the outer products of the rows less their mean.

    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> parts = Moments.of(x[:20]).merge(Moments.of(x[20:]))
    >>> bool(np.allclose(parts.covariance, np.cov(x.T)))
    True
    """

    n: int
    mean: Float[np.ndarray, " d"]
    scatter: Float[np.ndarray, "d d"]

    @classmethod
    def none(cls, dim: int) -> "Moments":
        """Start with no rows at all."""
        return cls(0, np.zeros(dim), np.zeros((dim, dim)))

    @classmethod
    def of(cls, features: Features) -> "Moments":
        """Take the moments of all rows."""
        found = rows(features, "features")
        return cls.none(found.shape[1]).update(found)

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Unbiased covariance; NaN for fewer than two rows."""
        return self.scatter / (self.n - 1) if self.n > 1 else np.full_like(self.scatter, np.nan)

    def update(self, features: Features) -> "Moments":
        """Return the moments of these rows and more."""
        return self._over(rows(features, NOTHING))

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of the rows of both."""
        if self.mean.shape != other.mean.shape:
            raise InputError(expected(NOTHING, f"{len(self.mean)} columns", len(other.mean)))
        if other.n == 0:
            return self
        n = self.n + other.n
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.n / n)
        scatter = np.outer(apart, apart * (self.n * other.n / n))
        scatter += self.scatter  # in place: these matrices are large
        scatter += other.scatter
        return Moments(n, mean, scatter)

    def _over(self, found: Rows, index: Index | None = None) -> "Moments":
        return reduce(lambda done, part: done.merge(_moments(part)), chunks(found, index), self)


def _moments(part: Float[np.ndarray, "k d"]) -> Moments:
    mean = part.mean(0)
    centred = part - mean
    return Moments(len(part), mean, centred.T @ centred)


def fid(real: Features, fake: Features) -> float:
    """Return the Frechet distance of two sets of features; NaN if one has fewer than two rows.

    With no more rows than columns the covariances are singular and the value is too large: see `reliable`.

    >>> x = np.random.default_rng(0).normal(size=(100, 4))
    >>> round(fid(x, x + 1), 6)
    4.0
    """
    first, second = pair(real, fake)
    return distance_of(first, second)


def distance_of(real: Rows, fake: Rows, first: Index | None = None, second: Index | None = None) -> float:
    """Return the Frechet distance of rows, or of those of two indices, that are known to be good."""
    dim = real.shape[1]
    counts = [len(found if index is None else index) for found, index in ((real, first), (fake, second))]
    if min(counts) < 2:
        return float("nan")
    if max(counts) < dim:
        return _few(taken(real, first), taken(fake, second))
    none = Moments.none(dim)
    return frechet_distance(none._over(real, first), none._over(fake, second))


def frechet_distance(a: Moments, b: Moments) -> float:
    """Return the Frechet distance of two Gaussians; NaN if one is of fewer than two rows."""
    if a.mean.shape != b.mean.shape:
        raise InputError(expected("moments", f"{len(a.mean)} columns in both", len(b.mean)))
    if min(a.n, b.n) < 2:
        return float("nan")
    factor, covariance = _factor(a.covariance), b.covariance
    # The squares of the singular values of AB' are the eigenvalues of A C2 A'.
    squares = np.linalg.eigvalsh(factor @ covariance @ factor.T)
    shared = np.sqrt(squares.clip(0)).sum()
    spread = np.trace(a.covariance) + np.trace(covariance) - 2 * shared
    return max(0.0, float(np.square(a.mean - b.mean).sum() + spread))  # equal sets may round to below 0


def reliable(real: Features, fake: Features) -> bool:
    """Tell whether both sets have more rows than columns, without which FID says little."""
    return min(len(real), len(fake)) > real.shape[1]


def _factor(covariance: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "r d"]:
    """Return A with A'A = C, without the directions that are only rounding."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > max(values[-1], 0.0) * len(values) * np.finfo(np.float64).eps
    factor: np.ndarray = (vectors[:, kept] * np.sqrt(values[kept])).T
    return factor


def _few(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "m d"]) -> float:
    """Fewer rows than columns on both sides: an (n, m) matrix says all."""
    means = a.mean(0), b.mean(0)
    first, second = ((x - m) / np.sqrt(len(x) - 1) for x, m in zip((a, b), means, strict=True))
    shared = np.linalg.svd(first @ second.T, compute_uv=False).sum()
    spread = np.square(first).sum() + np.square(second).sum() - 2 * shared
    return max(0.0, float(np.square(means[0] - means[1]).sum() + spread))
