"""Between floats in [-1, 1] and the integers of a file: the only place that knows the formula."""

import torch
from torch import Tensor

from fastdime.errors import InputError, expected

BITS = (8, 16)


def top_level(bits: int) -> int:
    """Return the largest integer that a pixel of this depth can hold."""
    if bits not in BITS:
        raise InputError(expected("bits", "8 or 16", bits))
    return int(2**bits - 1)


def to_integers(x: Tensor, bits: int = 8, *, truncate: bool = False) -> Tensor:
    """Map floats in [-1, 1] to integers, clipping what lies outside.

    Args:
        truncate: cut the fraction off instead of rounding (what the published programs do).
    """
    half = top_level(bits) / 2
    scaled = ((x.detach() + 1) * half).clamp(0, 2 * half)
    return (scaled.floor() if truncate else scaled.round()).to(torch.int32)


def from_integers(levels: Tensor, bits: int = 8) -> Tensor:
    """Map integers of a file to float32 in [-1, 1]."""
    return (levels.to(torch.float64) / (top_level(bits) / 2) - 1).to(torch.float32)


def to_grid(x: Tensor, bits: int = 8, *, truncate: bool = False) -> Tensor:
    """Move every pixel to the nearest value that a file of this depth can hold.

    >>> to_grid(torch.tensor([0.0, 2.0]))
    tensor([0.0039, 1.0000])
    """
    return from_integers(to_integers(x, bits, truncate=truncate), bits).to(x)
