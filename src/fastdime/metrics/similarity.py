"""How alike the features of a picture and of its counterfactual are."""

import numpy as np
from jaxtyping import Float

from fastdime.errors import InputError, expected
from fastdime.metrics.rows import Features, Rows, check_paired, shaped


def cosine(a: Features, b: Features) -> Float[np.ndarray, " n"]:
    """Return the cosine of each row of `a` with the same row of `b`.

    A row of zeros has no direction, and a row with NaN was not measured: both give NaN.

    >>> cosine(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 1.0]])).round(3).tolist()
    [0.707, nan]
    """
    first, second = _paired(a, b)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products = np.einsum("nd,nd->n", first, second)
    found: np.ndarray = np.divide(products, lengths, out=np.full(len(first), np.nan), where=lengths > 0)
    return found


def euclidean(a: Features, b: Features) -> Float[np.ndarray, " n"]:
    """Return the distance of each row of `a` from the same row of `b`; a row with NaN gives NaN.

    >>> euclidean(np.array([[3.0, 0.0]]), np.array([[0.0, 4.0]])).tolist()
    [5.0]
    """
    first, second = _paired(a, b)
    found: np.ndarray = np.linalg.norm(first - second, axis=1)
    return found


def _paired(a: Features, b: Features) -> tuple[Rows, Rows]:
    first, second = (
        shaped(x, f"{side} features").astype(np.float64) for side, x in (("real", a), ("fake", b))
    )
    check_paired(first, second)
    if first.shape != second.shape:
        raise InputError(expected("fake features", f"{first.shape[1]} columns", second.shape[1]))
    for side, found in (("real", first), ("fake", second)):
        if np.isinf(found).any():
            raise InputError(expected(f"{side} features", "finite numbers or NaN", "infinity"))
    return first, second
