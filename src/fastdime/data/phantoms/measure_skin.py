"""Read a skin picture: how ragged and many-coloured the mole is, and whether there is a ruler, or hairs."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from fastdime.data.phantoms.measure_tools import REFERENCE_SIZE, Maps, blur, connected, crossing, otsu, sample

ANGLES, TILTS = 96, 9
Features = Float[Tensor, "b f"]


def atypia(x: Float[Tensor, "b 3 h w"]) -> Features:
    """Return logarithms of what makes a mole suspect: waves of its outline and spreads of its colours."""
    size = x.shape[-1]
    k = size / REFERENCE_SIZE
    dark = blur(_median((x[:, 1] + x[:, 2]) / 2, max(3, int(3 * k) | 1)), 0.8 * k)
    place = (torch.arange(size) + 0.5) / size * 2 - 1
    central = (place.abs()[:, None] < 0.84) & (place.abs() < 0.84)
    level = otsu(dark[:, central])
    mole = _mole((dark < level.view(-1, 1, 1)) & central, k)
    area = mole.flatten(1).float().mean(1, keepdim=True)
    return torch.log(torch.cat([_waves(dark, mole, level), _spreads(x, mole, k), area], 1) + 1e-3)


def _median(x: Maps, width: int) -> Maps:
    padded = functional.pad(x[:, None], [width // 2] * 4, mode="reflect")
    values = functional.unfold(padded, width).median(1).values
    return values.view_as(x)


def _mole(mask: Bool[Tensor, "b h w"], k: float) -> Bool[Tensor, "b h w"]:
    """Return the part of a dark mask that hangs together with its most solid place."""
    solid = blur(mask.float(), 4 * k).flatten(1)
    seed = functional.one_hot(solid.argmax(1), solid.shape[1]).view_as(mask).bool()
    return connected(mask, seed)


def _waves(dark: Maps, mole: Bool[Tensor, "b h w"], level: Tensor) -> Float[Tensor, "b n"]:
    """Return the strength of each wave of the radius around the centre, and of several together."""
    size = dark.shape[-1]
    place = (torch.arange(size) + 0.5) / size * 2 - 1
    weight = mole.float() / mole.flatten(1).sum(1).view(-1, 1, 1)
    centre = torch.stack([(weight.sum(1) * place).sum(1), (weight.sum(2) * place).sum(1)], 1)
    angle = torch.arange(ANGLES) * (2 * torch.pi / ANGLES)
    directions = torch.stack([torch.cos(angle), torch.sin(angle)], 1)
    ray = torch.arange(0, 1, 1 / size)
    profiles = sample(dark[:, None], centre[:, None, None] + ray[:, None] * directions[:, None])[:, 0]
    start = torch.zeros(profiles.shape[:2], dtype=torch.long)
    radius = crossing(profiles, start, level[:, None].expand_as(start), 1)
    waves = torch.fft.rfft(radius).abs() / radius.sum(1, keepdim=True)
    together = [waves[:, first:9].norm(dim=1, keepdim=True) for first in (2, 3, 4)]
    return torch.cat([waves[:, 2:9], *together], 1)


def _spreads(x: Float[Tensor, "b 3 h w"], mole: Bool[Tensor, "b h w"], k: float) -> Float[Tensor, "b n"]:
    """Return the standard deviation inside the mole of each channel and of two hues, fine and coarse."""
    core = (blur(mole.float(), 1.2 * k) > 0.85).flatten(1).float()
    count = core.sum(1).clamp(min=1)
    red, green, blue = torch.log((x + 1) / 2 + 0.05).unbind(1)
    spreads = []
    for width in (1.2 * k, 2.4 * k):
        for channel in (red, green, blue, red - green, green - blue):
            values = blur(channel, width).flatten(1)
            mean = (values * core).sum(1) / count
            spreads.append((((values - mean[:, None]) ** 2 * core).sum(1) / count).sqrt())
    return torch.stack(spreads, 1)


def ruler_line(x: Float[Tensor, "b 3 h w"]) -> Features:
    """Return how much darker than its surroundings the darkest straight line near a side is."""
    size = x.shape[-1]
    grey = x.mean(1)
    fine = grey - blur(grey, 4 * size / REFERENCE_SIZE)
    along, tilt = torch.linspace(-0.98, 0.98, size), torch.linspace(-0.13, 0.13, TILTS).view(-1, 1, 1)
    out = (torch.arange(0.74, 0.99, 1 / size)[:, None] + torch.sin(tilt) * along) / torch.cos(tilt)
    points = torch.stack([along.expand_as(out), out], -1)
    inside = out.abs() < 0.99
    enough = inside.float().mean(-1) >= 0.6
    darkest = []
    for side in (fine, fine.mT, fine.flip(1), fine.mT.flip(1)):
        values = sample(side[:, None], points[None])[:, 0] * inside
        mean = values.sum(-1) / inside.sum(-1).clamp(min=1)
        darkest.append(torch.where(enough, -mean, 0).flatten(1).amax(1))
    return torch.stack(darkest, 1).amax(1, keepdim=True)


def hair_lines(x: Float[Tensor, "b 3 h w"]) -> Features:
    """Return logarithms of how dark the lines are that a closing fills, with and without the rim."""
    size = x.shape[-1]
    k = size / REFERENCE_SIZE
    grey, found = x.mean(1, keepdim=True), []
    for width in (round(3 * k) | 1, round(5 * k) | 1):
        grown = functional.max_pool2d(grey, width, 1, width // 2)
        filled = -functional.max_pool2d(-grown, width, 1, width // 2) - grey
        for rim in (round(4 * k), round(12 * k)):  # a ruler lies in the outer part
            inner = filled[:, 0, rim : size - rim, rim : size - rim].flatten(1)
            found += [inner.mean(1), *inner.quantile(torch.tensor([0.8, 0.9, 0.95, 0.98, 0.99]), 1)]
    return torch.log(torch.stack(found, 1) + 0.01)
