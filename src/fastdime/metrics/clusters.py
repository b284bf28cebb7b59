"""Values that belong together, such as the images of one patient, count as one."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from fastdime.errors import InputError, expected
from fastdime.metrics.numbers import NAN, Groups, as_numbers, check_equal_length

ROUNDING = 1e-12  # of means that are equal, as a share of them


@dataclass(frozen=True)
class Clusters:
    """Sum and number of the values of each cluster, in an order that does not depend on that of the rows."""

    sums: Float64[np.ndarray, " g"]
    counts: Float64[np.ndarray, " g"]

    def __len__(self) -> int:
        """Return the number of clusters."""
        return len(self.sums)

    @property
    def n(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean over values, so that a large cluster counts more; NaN without values."""
        return math.fsum(self.sums) / self.n if self.n else NAN

    @property
    def error(self) -> float:
        """Standard error of the mean (of a ratio, linearised); NaN with fewer than two clusters.

        Without groups it is the usual one: spread / sqrt(n). It is 0 where all clusters have one mean.
        """
        size = len(self)
        if size < 2:
            return NAN
        means = self.sums / self.counts
        if np.ptp(means) <= ROUNDING * np.abs(means).max():
            return 0.0
        residuals = self.sums - self.mean * self.counts
        return math.sqrt(size / (size - 1) * math.fsum(residuals**2)) / self.n


def clusters(values: ArrayLike, groups: Groups | None = None) -> Clusters:
    """Sum the values of each group; without groups every value stands alone.

    >>> clusters([1.0, 2.0, 4.0], ["a", "b", "a"]).sums
    array([2., 5.])
    """
    numbers = as_numbers("values", values)
    if groups is None:
        return Clusters(np.sort(numbers), np.ones(len(numbers)))
    check_equal_length("values and groups", numbers, groups)
    codes = codes_of(groups)
    order = np.lexsort((numbers, codes))
    counts = np.bincount(codes).astype(np.float64)
    sums = np.bincount(codes[order], numbers[order], minlength=len(counts)).astype(np.float64)
    settled = np.lexsort((counts, sums))
    return Clusters(sums[settled], counts[settled])


def codes_of(groups: Groups) -> Int64[np.ndarray, " n"]:
    """Number the groups from 0; a value without a group is refused.

    >>> codes_of(["b", "a", "b"])
    array([0, 1, 0])
    """
    import pandas as pd

    codes, _ = pd.factorize(np.asarray(groups, dtype=object))
    if missing := int((codes < 0).sum()):
        remedy = "give these one of their own"
        raise InputError(expected("groups", "a group for every value", f"{missing} without", remedy))
    return codes.astype(np.int64)
