"""Integers to floats and back without loss."""

import pytest
import torch

from fastdime.errors import InputError
from fastdime.pixels import from_integers, to_grid, to_integers


@pytest.mark.parametrize("bits", [8, 16])
def test_every_level_comes_back(bits: int) -> None:
    levels = torch.arange(2**bits)
    x = from_integers(levels, bits)
    assert torch.equal(to_integers(x, bits), levels.to(torch.int32))
    assert torch.equal(to_grid(x, bits), x)
    assert (x.min(), x.max()) == (-1, 1)


def test_rounding_and_truncation() -> None:
    x = torch.tensor([-2.0, 0.0, 0.005, 2.0])
    assert to_integers(x).tolist() == [0, 128, 128, 255]
    assert to_integers(x, truncate=True).tolist() == [0, 127, 128, 255]


def test_other_depths_are_refused() -> None:
    with pytest.raises(InputError, match="8 or 16"):
        to_integers(torch.zeros(1), 12)
