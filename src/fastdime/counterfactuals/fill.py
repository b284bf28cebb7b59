"""Cover part of an image with what is around it, so that nothing of what was there is left."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad

ROUNDS = 32  # of smoothing at each size


def filled(x: Float[Tensor, "b c h w"], mask: Bool[Tensor, "b 1 h w"]) -> Float[Tensor, "b c h w"]:
    """Return the image with the mask filled smoothly from its rim; grey if there is nothing but mask.

    The fill is settled on a small image first and refined at each larger one.

    >>> row = torch.tensor([[[[0.0, 9.0, 9.0, 3.0]]]])
    >>> filled(row, row > 5).round(decimals=3).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    known = (~mask).to(x)
    return _smoothed(_rough(x * known, known), mask)


def _rough(x: Tensor, known: Tensor) -> Tensor:
    """Fill from an image of half the size, which is filled in the same way."""
    if bool((known > 0).all()) or max(x.shape[2:]) == 1:
        return torch.where(known > 0, x, 0.0)
    size = x.shape[2:]
    share = avg_pool2d(known, 2, ceil_mode=True)
    small = avg_pool2d(x, 2, ceil_mode=True) / share.clamp(min=1e-6)
    some = (share > 0).to(x)
    coarse = _smoothed(_rough(small * some, some), some == 0)
    return torch.where(known > 0, x, interpolate(coarse, size=size, mode="bilinear", align_corners=False))


def _smoothed(x: Tensor, mask: Tensor) -> Tensor:
    """Move each unknown pixel towards the mean of its neighbours, some times.

    Sums, not a convolution: on some machines that differs in the last bit from batch to batch.
    """
    for _ in range(ROUNDS):
        wide = pad(x, (1, 1, 1, 1), mode="replicate")
        beside = wide[..., 1:-1, :-2] + wide[..., 1:-1, 2:]
        near = (beside + (wide[..., :-2, 1:-1] + wide[..., 2:, 1:-1])) / 4
        x = torch.where(mask, near, x)
    return x
