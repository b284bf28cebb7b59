"""From one number an image to a mean with its interval."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float64

from fastdime.errors import InputError, expected
from fastdime.metrics.clusters import clusters
from fastdime.metrics.numbers import NAN, Groups, Numbers, Values, as_numbers, check_equal_length

CHUNK = 1 << 18  # drawn numbers held at once; more would not fit the cache of a processor
NORMAL = NormalDist()


@dataclass(frozen=True)
class Estimate:
    """A mean and how sure it is.

    Attributes:
        low, high: ends of the interval; NaN where there is none (see `reason`).
        n: how many values.
        clusters: how many groups of values that belong together, for example patients; n without groups.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int

    @property
    def reason(self) -> str:
        """Why a number is NaN; empty when none is."""
        if self.n == 0:
            return "no values"
        if self.clusters == 1:
            return "one value has no interval" if self.n == 1 else "one group has no interval"
        return ""


def mean_interval(
    values: Values,
    groups: Groups | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Return the mean with a BCa bootstrap interval (Efron 1987); the order of values does not matter.

    No values give NaN, one value or one group a mean without interval. Where all values are equal the
    interval has no width: the data say nothing about how much they could vary.

    Args:
        groups: what each value belongs to, for example its patient; whole groups are drawn then.

    Raises:
        InputError: NaN or infinity among the values, a value without group, a level outside (0, 1).

    >>> mean_interval([0.25, 0.5, 0.75]).value
    0.5
    >>> mean_interval([1.0]).reason
    'one value has no interval'
    """
    _check_settings(level, resamples, seed)
    numbers = as_numbers("values", values)
    found = clusters(numbers, groups)
    n, size = len(numbers), len(found)
    if n == 0:
        return Estimate(NAN, NAN, NAN, 0, 0)
    value = math.fsum(numbers) / n
    if size == 1:
        return Estimate(value, NAN, NAN, n, 1)
    if numbers.min() == numbers.max():
        same = float(numbers[0])  # the mean of equal numbers can be off by rounding
        return Estimate(same, same, same, n, size)
    drawn = _resampled(found.sums, found.counts, resamples, np.random.default_rng(seed))
    low, high = _bca(drawn, value, _left_out(found.sums, found.counts), level)
    return Estimate(value, low, high, n, size)


def share_interval(share: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson interval of a share of n; it has a width also where all or none count.

    >>> [round(end, 3) for end in share_interval(1.0, 20)]
    [0.839, 1.0]
    """
    z = NORMAL.inv_cdf((1 + level) / 2) ** 2 / n
    middle, reach = (share + z / 2) / (1 + z), math.sqrt(share * (1 - share) * z + z * z / 4) / (1 + z)
    low, high = max(0.0, middle - reach), min(1.0, middle + reach)
    return 0.0 if share == 0 else low, 1.0 if share == 1 else high  # which rounding may miss


def paired_difference(
    a: Values,
    b: Values,
    groups: Groups | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Return the mean of b - a with its interval, for two numbers of each image.

    >>> paired_difference([0.0, 0.5, 0.5], [0.5, 1.0, 1.0]).value
    0.5
    """
    before, after = as_numbers("a", a), as_numbers("b", b)
    check_equal_length("a and b", before, after)
    return mean_interval(after - before, groups, level=level, resamples=resamples, seed=seed)


def correlation(a: Values, b: Values) -> float:
    """Return Pearson's correlation; NaN when one side is constant or there are fewer than two values.

    >>> round(correlation([1, 2, 3], [2, 4, 7]), 3)
    0.993
    """
    x, y = as_numbers("a", a), as_numbers("b", b)
    check_equal_length("a and b", x, y)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return NAN
    x, y = x - x.mean(), y - y.mean()
    r = (x / np.linalg.norm(x)) @ (y / np.linalg.norm(y))
    return float(np.clip(r, -1, 1))  # rounding can leave the range


class Means:
    """Collects numbers of images batch by batch; batches and parts may come in any order."""

    def __init__(self) -> None:
        """Start with no images."""
        self._rows: dict[str, dict[str, float]] = {}
        self._names: tuple[str, ...] | None = None

    @property
    def ids(self) -> list[str]:
        """Ids of the images so far, sorted."""
        return sorted(self._rows)

    def update(self, values: Mapping[str, Values], ids: Sequence[str]) -> None:
        """Add a batch: for each metric one number an image; NaN is kept as it is.

        Raises:
            InputError: the metrics differ from those of earlier batches, an id came before, or sizes differ.
        """
        columns = {name: _column(name, column, len(ids)) for name, column in values.items()}
        for id_, times in Counter(ids).most_common(1):
            _check_new(id_ if times > 1 else None)
        rows = {id_: {name: columns[name][row] for name in columns} for row, id_ in enumerate(ids)}
        self._add(tuple(sorted(columns)), rows)

    def merge(self, other: "Means") -> None:
        """Add the images that another one has collected."""
        if other._names is not None:
            self._add(other._names, other._rows)

    def compute(self) -> dict[str, Numbers]:
        """Return an array for each metric, in the order of `ids`."""
        ids = self.ids
        return {name: np.array([self._rows[id_][name] for id_ in ids]) for name in self._names or ()}

    def _add(self, names: tuple[str, ...], rows: Mapping[str, dict[str, float]]) -> None:
        if self._names not in (None, names):
            raise InputError(expected("metrics of a batch", ", ".join(self._names or ()), ", ".join(names)))
        _check_new(min(rows.keys() & self._rows.keys(), default=None))
        self._names = names
        self._rows |= rows


def _check_new(known: str | None) -> None:
    if known is not None:
        raise InputError(expected("ids", "every image once", f"{known!r} again"))


def _column(name: str, values: Values, images: int) -> list[float]:
    held = values.detach().cpu() if hasattr(values, "detach") else values
    numbers = np.asarray(held, dtype=np.float64)
    if numbers.shape != (images,):
        raise InputError(expected(name, f"one number for each of {images} images", f"shape {numbers.shape}"))
    column: list[float] = numbers.tolist()
    return column


def _check_settings(level: float, resamples: int, seed: int) -> None:
    if not 0 < level < 1:
        raise InputError(expected("level", "a number between 0 and 1", level))
    if resamples < 1:
        raise InputError(expected("resamples", "a whole number >= 1", resamples))
    if seed < 0:
        raise InputError(expected("seed", "a whole number >= 0", seed))


def _resampled(
    sums: Float64[np.ndarray, " g"],
    counts: Float64[np.ndarray, " g"],
    resamples: int,
    rng: np.random.Generator,
) -> Float64[np.ndarray, " r"]:
    """Draw the groups with replacement, many times, and return the mean of each draw."""
    size = len(sums)
    rows = max(1, CHUNK // size)
    alike = bool((counts == counts[0]).all())
    means = []
    for first in range(0, resamples, rows):
        shape = (min(rows, resamples - first), size)
        drawn = rng.integers(0, size, shape)
        weight = counts[0] * size if alike else counts[drawn].sum(1)
        means.append(sums[drawn].sum(1) / weight)
    return np.concatenate(means)


def _left_out(
    sums: Float64[np.ndarray, " g"], counts: Float64[np.ndarray, " g"]
) -> Float64[np.ndarray, " g"]:
    """Return the means without each group in turn."""
    means: Numbers = (sums.sum() - sums) / (counts.sum() - counts)
    return means


def _bca(drawn: Numbers, value: float, left_out: Numbers, level: float) -> tuple[float, float]:
    """Return the ends of the bias-corrected and accelerated interval."""
    # Half of the ties count as below. Never all or none, where the normal quantile has no end.
    below = ((drawn < value).mean() + (drawn <= value).mean()) / 2
    edge = 0.5 / len(drawn)
    bias = NORMAL.inv_cdf(float(np.clip(below, edge, 1 - edge)))
    deviations = left_out.mean() - left_out
    spread = float((deviations**2).sum()) ** 1.5
    acceleration = float((deviations**3).sum()) / (6 * spread) if spread > 0 else 0.0
    tail = NORMAL.inv_cdf((1 - level) / 2)
    low, high = np.quantile(drawn, [_share(bias, acceleration, z) for z in (tail, -tail)])
    return float(low), float(high)


def _share(bias: float, acceleration: float, z: float) -> float:
    """Return which share of the draws lies below an end of the interval (Efron 1987, eq. 3.8)."""
    moved = bias + z
    stretch = 1 - acceleration * moved
    if stretch <= 0:  # past the pole of the formula, whose limit is the end of the draws
        return float(moved > 0)
    return NORMAL.cdf(bias + moved / stretch)
