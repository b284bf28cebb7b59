"""Images to train oracles on: whole shortcuts, parts of them, faint ones, and things that only look alike.

An oracle judges counterfactuals, so it must know what they may look like: a shortcut that is gone in part,
and an object that was put in but is a blob. It learns from exact pairs which of them count.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from fastdime.data.phantoms.phantom import Batch, phantom
from fastdime.pixels import to_integers
from fastdime.training.augment import rectangles
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures

CHUNK = 250  # subjects drawn at once
SEEN, GONE = 0.08, 0.02  # share of the region that is there, from which, and up to which, it counts
WHOLE, BROKEN = 0.9, 0.6
FAINT, CLEAR = 0.12, 0.5  # share of the contrast, likewise
POINTS = 24  # along a scribble


@dataclass(frozen=True)
class Examples:
    """Images, and whether each shows any part of the shortcut, and all of it (NaN: neither yes nor no)."""

    x: Tensor
    some: Tensor
    whole: Tensor


def oracle_pictures(name: str, seed: int, subjects: int, label: str) -> Pictures:
    """Draw the images for an oracle of a phantom.

    Args:
        label: "shortcut" (any part of it counts), "complete" (only a whole one does), or "task".
    """
    parts = [
        _chunk(name, seed, first, min(first + CHUNK, subjects), label) for first in range(0, subjects, CHUNK)
    ]
    return Pictures(torch.cat([x for x, _ in parts]), 8, torch.cat([labels for _, labels in parts]))


def _chunk(name: str, seed: int, first: int, last: int, label: str) -> tuple[Tensor, Tensor]:
    batch = phantom(name).render(seed, range(first, last), None)
    if label == "task":
        x, labels = torch.cat([batch.x, batch.other]), batch.y.repeat(2).float()
    else:
        made = [make(batch, generator(seed, first, number)) for number, make in enumerate(KINDS)]
        x = torch.cat([part.x for part in made])
        labels = torch.cat([part.some if label == "shortcut" else part.whole for part in made])
    known = ~labels.isnan()
    return to_integers(x[known].clamp(-1, 1)).to(torch.uint8), labels[known]


def plain(batch: Batch, random: torch.Generator) -> Examples:
    """Both images of each pair, as they are."""
    yes = torch.ones(len(batch.x))
    labels = torch.cat([yes, 0 * yes])
    return Examples(torch.cat([batch.with_shortcut, batch.without]), labels, labels)


def fragments(batch: Batch, random: torch.Generator) -> Examples:
    """The shortcut only inside, or only outside, two rectangles."""
    shown = rectangles(batch.x, random) | rectangles(batch.x, random)
    shown ^= (torch.rand(len(batch.x), generator=random) < 0.5).view(-1, 1, 1, 1)
    region = batch.region
    share = (region & shown).sum((1, 2, 3)) / region.sum((1, 2, 3)).clamp(min=1)
    x = torch.where(shown, batch.with_shortcut, batch.without)
    return Examples(x, _between(share, GONE, SEEN), _between(share, BROKEN, WHOLE))


def faint(batch: Batch, random: torch.Generator) -> Examples:
    """The shortcut with less contrast; half of them so faint that it counts as gone."""
    share = torch.rand(len(batch.x), generator=random)
    share = torch.where(torch.rand(len(share), generator=random) < 0.5, share * FAINT, CLEAR + share / 2)
    amount = share.view(-1, 1, 1, 1)
    labels = _between(share, FAINT, CLEAR)
    return Examples(batch.without + amount * (batch.with_shortcut - batch.without), labels, labels)


def smudged(batch: Batch, random: torch.Generator) -> Examples:
    """The place of the shortcut, smoothed, with and without it: a coarse repair is no shortcut."""
    near = max_pool2d(batch.region.float(), 5, 1, 2)
    has = torch.rand(len(batch.x), generator=random) < 0.3
    x = torch.where(has.view(-1, 1, 1, 1), batch.with_shortcut, batch.without)
    smooth = avg_pool2d(avg_pool2d(x, 5, 1, 2, count_include_pad=False), 5, 1, 2, count_include_pad=False)
    smooth = smooth + 0.1 * torch.rand((len(x), 1, 1, 1), generator=random) * torch.randn(
        x.shape, generator=random
    )
    amount = near * (~has).view(-1, 1, 1, 1)
    return Examples(x + amount * (smooth - x), has.float(), has.float())


def scribbled(batch: Batch, random: torch.Generator) -> Examples:
    """Blobs and curves drawn anywhere, mostly without the shortcut."""
    has = torch.rand(len(batch.x), generator=random) < 0.25
    x = torch.where(has.view(-1, 1, 1, 1), batch.with_shortcut, batch.without)
    count = torch.randint(1, 4, (len(x),), generator=random)
    for number in range(3):
        drawn = scribble(x, random) * (count > number).view(-1, 1, 1, 1)
        strength = 0.2 + torch.rand((len(x), x.shape[1], 1, 1), generator=random)
        sign = (torch.rand((len(x), x.shape[1], 1, 1), generator=random) - 0.5).sign()
        sign = torch.where(torch.rand((len(x), 1, 1, 1), generator=random) < 0.5, sign[:, :1], sign)
        x = x + drawn * sign * strength
    return Examples(x, has.float(), has.float())


def scribble(x: Tensor, random: torch.Generator) -> Tensor:
    """Draw one curve, from a point (a blob) to a line across the image, in each; its opacity in [0, 1]."""
    count, size = len(x), x.shape[-1]
    places = torch.rand((count, 3, 2), generator=random) * 2 - 1
    length = torch.rand((count, 1, 1), generator=random) ** 2
    places = places[:, :1] + length * (places - places[:, :1])
    t = torch.linspace(0, 1, POINTS)
    curve = torch.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2], 1) @ places
    line = torch.linspace(-1, 1, size)
    pixels = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).view(-1, 2)
    distance = torch.cdist(pixels.expand(count, -1, -1), curve).amin(2).view(count, 1, size, size)
    width = (
        0.02 + 0.2 * torch.rand((count, 1, 1, 1), generator=random) ** 3 + 0.12 * (length[..., None] < 0.05)
    )
    softness = 0.02 + 0.1 * torch.rand((count, 1, 1, 1), generator=random)
    return ((width - distance) / softness + 0.5).clamp(0, 1)


KINDS = (plain, fragments, fragments, faint, smudged, scribbled)


def _between(share: Tensor, low: float, high: float) -> Tensor:
    """Return 0 up to `low`, 1 from `high`, and NaN between them."""
    unknown = torch.full_like(share, torch.nan)
    return torch.where(share >= high, 1.0, torch.where(share <= low, 0.0, unknown))
