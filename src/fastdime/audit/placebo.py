"""The placebo edit: a change as large as that of a counterfactual, in another place, and meaning nothing.

The change itself is shifted, over the border to the other side, to where it meets itself least, and small
squares of it change sign at random. So it has the same size and area, but no shape: a shifted pacemaker would
still be a pacemaker, and a dark blob a lesion.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from fastdime.counterfactuals.checks import check_names
from fastdime.metrics.closeness import check_pair
from fastdime.noise import SeededNoise
from fastdime.pixels import to_grid

SQUARES = 32  # along the longer side
ROUNDING = 1e-6


def placebo_edit(x: Tensor, x_cf: Tensor, ids: Sequence[str], seed: int = 0, bits: int = 8) -> Tensor:
    """Return the placebo of each counterfactual, on the grid of `bits`.

    A square that has no room for its change, because it is black or white already, takes the other sign.

    Args:
        ids: names of the images; the result depends on them, the seed and the pictures alone.

    >>> x = torch.zeros(1, 1, 16, 16)
    >>> x_cf = x.clone()
    >>> x_cf[..., 2:5, 2:5] = 1.0
    >>> placebo = placebo_edit(x, x_cf, ["a"])
    >>> float(placebo[..., 2:5, 2:5].abs().max()), float(placebo.abs().sum())
    (0.0, 9.0)
    """
    check_pair(x, x_cf)
    check_names(list(ids), len(x))
    moved = elsewhere(x_cf - x) * _signs(x, ids, seed)
    other_way = (x + moved).abs() > 1 + ROUNDING
    moved = torch.where(other_way, -moved, moved)
    return torch.where(moved.abs() < ROUNDING, x, to_grid((x + moved).clamp(-1, 1), bits))


def elsewhere(change: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Shift each change to where it meets itself least.

    >>> elsewhere(torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]])).flatten().tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    amount = change.abs().mean(1, keepdim=True)
    height, width = amount.shape[2:]
    meets = torch.fft.irfft2(torch.fft.rfft2(amount.double()).abs() ** 2, s=(height, width))
    # Of shifts that are as good, the one nearest to half the image: far away, and the same on every machine.
    rows, columns = torch.arange(height).view(-1, 1), torch.arange(width)
    near = (rows - height // 2).abs() / height + (columns - width // 2).abs() / width
    most = meets.amax((2, 3), keepdim=True).clamp(min=1e-12)
    best = ((meets / most).round(decimals=3) + 1e-4 * near.to(meets)).flatten(1).argmin(1)
    shifts = [(int(place) // width, int(place) % width) for place in best]
    moved = [part.roll(shift, (1, 2)) for part, shift in zip(change, shifts, strict=True)]
    return torch.stack(moved)


def _signs(x: Float[Tensor, "b c h w"], ids: Sequence[str], seed: int) -> Float[Tensor, "b 1 h w"]:
    """Draw +1 or -1 for each square of an image."""
    side = max(1, round(max(x.shape[2:]) / SQUARES))
    height, width = (-(-length // side) for length in x.shape[2:])
    drawn = SeededNoise(seed, ids).draw(x.new_zeros(len(x), 1, height, width), "placebo")
    signs = torch.where(drawn > 0, 1.0, -1.0).to(x)
    wide = interpolate(signs, scale_factor=float(side), mode="nearest")
    return wide[..., : x.shape[2], : x.shape[3]]
