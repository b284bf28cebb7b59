"""Numbers of images as the statistics see them: flat, finite, one an image."""

from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdime.errors import InputError, expected

Numbers = NDArray[np.float64]
Values = ArrayLike | Sequence[Any]  # tensors are array-like too
Groups = Sequence[object] | NDArray[np.generic]
NAN = float("nan")


def as_numbers(what: str, values: Values) -> Numbers:
    """Return a flat float64 array; refuse other shapes, text, NaN and infinity.

    Args:
        what: name of the values in the error sentence.

    >>> as_numbers("scores", [0, 1])
    array([0., 1.])
    """
    held = values.detach().cpu() if hasattr(values, "detach") else values
    try:
        numbers = np.asarray(held, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(expected(what, "numbers", type(values).__name__)) from None
    if numbers.ndim != 1:
        raise InputError(expected(what, "one number an image, shape (b,)", numbers.shape))
    if bad := int((~np.isfinite(numbers)).sum()):
        got = f"NaN or infinity {bad} times in {len(numbers)}"
        raise InputError(expected(what, "finite numbers", got, "drop these images and say why"))
    return numbers


def check_equal_length(what: str, a: Sized, b: Sized) -> None:
    """Refuse lists that cannot belong to the same images.

    >>> check_equal_length("labels and scores", [1, 0], [0.5, 0.2])
    """
    if len(a) != len(b):
        raise InputError(expected(what, "the same number of each", f"{len(a)} and {len(b)}"))
