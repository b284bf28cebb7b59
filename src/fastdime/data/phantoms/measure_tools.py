"""Tools to read numbers back from pictures without a network."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

REFERENCE_SIZE = 64
Maps = Float[Tensor, "b h w"]
Profiles = Float[Tensor, "*n w"]


def row(y: float, size: int) -> int:
    """Return the row or column of a coordinate."""
    return int((y + 1) / 2 * size)


def blur(x: Maps, down: float, across: float | None = None) -> Maps:
    """Blur by a bell curve of these widths, in pixels of the picture."""
    for axis, width in ((1, down), (2, down if across is None else across)):
        x = _blur_axis(x, width, axis)
    return x


def _blur_axis(x: Tensor, width: float, axis: int) -> Tensor:
    if width <= 0:
        return x
    reach = min(int(4 * width + 0.5), x.shape[axis] - 1)
    offsets = torch.arange(-reach, reach + 1, dtype=x.dtype)
    kernel = torch.exp(-((offsets / width) ** 2) / 2)
    kernel = (kernel / kernel.sum()).view((-1, 1) if axis == 1 else (1, -1))
    sides = (0, 0, reach, reach) if axis == 1 else (reach, reach, 0, 0)
    padded = functional.pad(x[:, None], sides, mode="reflect")
    return functional.conv2d(padded, kernel[None, None])[:, 0]


def sample(x: Float[Tensor, "b c h w"], points: Float[Tensor, "..."]) -> Tensor:
    """Read pictures between pixels.

    Args:
        points: places in [-1, 1], of shape (b, ..., 2), or (1, ..., 2) for the same in every picture.

    Returns:
        The values, of shape (b, c, ...).
    """
    grid = points.expand(len(x), *points.shape[1:])
    shape = grid.shape[1:-1]
    values = functional.grid_sample(
        x, grid.reshape(len(x), -1, 1, 2).to(x), padding_mode="border", align_corners=False
    )
    answer: Tensor = values.view(len(x), x.shape[1], *shape)
    return answer


def crossing(profile: Profiles, start: Int[Tensor, "*n"], level: Tensor, direction: int) -> Tensor:
    """Walk from `start`, where a profile is low, to where it reaches a level; returns that place."""
    if direction < 0:
        last = profile.shape[-1] - 1
        return last - crossing(profile.flip(-1), last - start, level, 1)
    place = torch.arange(profile.shape[-1])
    reached = (place > start[..., None]) & (profile >= level[..., None])
    high = torch.where(reached.any(-1), reached.int().argmax(-1), profile.shape[-1] - 1).clamp(min=1)
    below = profile.gather(-1, (high - 1)[..., None])[..., 0]
    above = profile.gather(-1, high[..., None])[..., 0]
    share = ((level - below) / (above - below + 1e-9)).clamp(0, 1)
    return high - 1 + share


def otsu(values: Float[Tensor, "b m"]) -> Float[Tensor, " b"]:
    """Return the level that parts dark from bright best: where the variance between the two is largest."""
    ordered = values.sort(1).values
    count = torch.arange(1, ordered.shape[1])
    below, all_ = ordered.cumsum(1)[:, :-1], ordered.sum(1, keepdim=True)
    dark, bright = below / count, (all_ - below) / (ordered.shape[1] - count)
    between = count * (ordered.shape[1] - count) * (bright - dark) ** 2
    best = between.argmax(1, keepdim=True)
    return (ordered.gather(1, best) + ordered.gather(1, best + 1))[:, 0] / 2


def connected(mask: Bool[Tensor, "b h w"], seed: Bool[Tensor, "b h w"]) -> Bool[Tensor, "b h w"]:
    """Return the part of a mask that hangs together with a seed."""
    reached = mask & seed
    while True:
        grown = functional.max_pool2d(reached[:, None].float(), 3, stride=1, padding=1)[:, 0] > 0
        grown &= mask
        if torch.equal(grown, reached):
            return reached
        reached = grown


@dataclass(frozen=True)
class Ridge:
    """A linear map from features to a number; a feature that could not be measured counts as typical."""

    centre: Float[Tensor, " f"]
    scale: Float[Tensor, " f"]
    weights: Float[Tensor, " f"]
    offset: float

    def __call__(self, features: Float[Tensor, "b f"]) -> Float[Tensor, " b"]:
        """Map features."""
        standard = torch.nan_to_num((features.double() - self.centre) / self.scale)
        return standard @ self.weights + self.offset


def fit_ridge(features: Float[Tensor, "b f"], wanted: Float[Tensor, " b"], strength: float) -> Ridge:
    """Fit a linear map; `strength` keeps the weights of many features small."""
    x, y = features.double(), wanted.double()
    centre = x.nanmedian(0).values
    scale = torch.nan_to_num(x - centre).std(0) + 1e-9
    standard = torch.nan_to_num((x - centre) / scale)
    mean = standard.mean(0)
    moved = standard - mean
    squares = moved.T @ moved + strength * torch.eye(x.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(squares, moved.T @ (y - y.mean()))
    return Ridge(centre, scale, weights, float(y.mean() - mean @ weights))
