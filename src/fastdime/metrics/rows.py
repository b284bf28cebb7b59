"""Features as the metrics see them: arrays of rows that are read some at a time."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fastdime.errors import InputError, expected

CHUNK = 1024  # rows in memory at once
Features = np.ndarray | Tensor  # (n, d), one row an image; an np.memmap is an array too
Rows = Float[np.ndarray, "_ d"]
Index = Int[np.ndarray, " _"]


def rows(features: Features, what: str) -> Rows:
    """Return features as an array of finite rows, without a copy where there is an array already.

    Args:
        what: which features these are, for the sentence.

    Raises:
        InputError: they have another shape, are no floats, or are not finite.
    """
    found = shaped(features, what)
    good = finite(found)
    if not good.all():
        got = f"NaN or infinity in row {int(good.argmin())}"
        raise InputError(expected(what, "finite numbers", got, "leave such images out, and say how many"))
    return found


def finite(features: Rows) -> Bool[np.ndarray, " n"]:
    """Tell which rows are numbers throughout.

    >>> finite(np.array([[0.0, 1.0], [0.0, np.nan]])).tolist()
    [True, False]
    """
    good = np.ones(len(features), dtype=bool)
    for first in range(0, len(features), CHUNK):
        good[first : first + CHUNK] = np.isfinite(features[first : first + CHUNK]).all(1)
    return good


def shaped(features: Features, what: str) -> Rows:
    """Return features as an array of rows, finite or not."""
    found = features.detach().cpu().numpy() if isinstance(features, Tensor) else features
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind != "f":
        got = f"{getattr(found, 'dtype', type(found).__name__)} of shape {np.shape(found)}"
        raise InputError(expected(what, "floats of shape (images, features)", got))
    return found


def pair(real: Features, fake: Features) -> tuple[Rows, Rows]:
    """Return two sets of features of the same network."""
    first, second = rows(real, "real features"), rows(fake, "fake features")
    if first.shape[1] != second.shape[1]:
        wanted = f"{first.shape[1]} columns, as the real ones have"
        raise InputError(expected("fake features", wanted, second.shape[1], "take the same network for both"))
    return first, second


def chunks(features: Rows, index: Index | None = None) -> Iterator[Rows]:
    """Yield the rows, or those of an index, in float64, some at a time."""
    count = len(features) if index is None else len(index)
    for first in range(0, count, CHUNK):
        part = slice(first, first + CHUNK)
        yield features[part if index is None else index[part]].astype(np.float64)


def taken(features: Rows, index: Index | None = None) -> Rows:
    """Return the rows, or those of an index, in float64, all at once."""
    part = features if index is None else features[index]
    return np.asarray(part, dtype=np.float64)


def check_paired(real: np.ndarray, fake: np.ndarray) -> None:
    """Refuse sets in which not every picture has its counterfactual."""
    if len(real) != len(fake):
        wanted = f"{len(real)} rows, one for each real picture"
        raise InputError(expected("fake features", wanted, len(fake), "give both in the same order"))


def check_repeats(repeats: int) -> None:
    """Refuse to repeat something less than once."""
    if repeats < 1:
        raise InputError(expected("repeats", "a number >= 1", repeats))
