"""Covering part of an image with what is around it."""

import pytest
import torch

from fastdime.counterfactuals.fill import filled
from support import tiny


def box(n: int, height: int = 16, width: int = 16, reach: int = 4) -> torch.Tensor:
    mask = torch.zeros(n, 1, height, width, dtype=torch.bool)
    mask[:, :, 5 : 5 + reach, 4 : 6 + reach] = True
    return mask


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(16, 16), (13, 21)])
def test_nothing_of_what_was_there_is_left(channels: int, height: int, width: int) -> None:
    x, mask = tiny.images(2, channels, height, width), box(2, height, width)
    once = filled(x, mask)
    assert torch.equal(once, filled(torch.where(mask, 1.0 - x.abs(), x), mask))
    outside = ~mask.expand_as(x)
    assert torch.equal(once[outside], x[outside])


def test_between_the_values_around() -> None:
    x, mask = tiny.images(2), box(2)
    inside = filled(x, mask)[mask]
    assert inside.min() >= x[~mask].min()
    assert inside.max() <= x[~mask].max()


@pytest.mark.parametrize("reach", [1, 4, 9])
def test_a_slope_goes_on_across_the_gap(reach: int) -> None:
    """A plane is what smoothing settles on, so the fill must be nearly that, for small gaps and large."""
    down, across = torch.meshgrid(torch.linspace(-0.6, 0.6, 16), torch.linspace(-0.3, 0.3, 16), indexing="ij")
    plane = (down + across)[None, None]
    mask = box(1, reach=reach)
    torch.testing.assert_close(filled(torch.where(mask, 9.0, plane), mask), plane, atol=0.02, rtol=0)


def test_all_or_nothing() -> None:
    x = tiny.images(2)
    assert torch.equal(filled(x, torch.zeros(2, 1, 16, 16, dtype=torch.bool)), x)
    assert not filled(x, torch.ones(2, 1, 16, 16, dtype=torch.bool)).any()


def test_neighbours_do_not_matter() -> None:
    x, mask = tiny.images(3), box(3)
    mask[0], mask[1] = True, False
    together = filled(x, mask)
    for row in range(3):
        assert torch.equal(filled(x[row : row + 1], mask[row : row + 1])[0], together[row])
