"""Changes of training images that do not change their label."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fastdime.errors import InputError, expected

MOST_RECTANGLES = 3


@dataclass(frozen=True)
class Augment:
    """How much of what; everything is drawn from the generator of the update.

    Attributes:
        shift: largest shift in pixels; the border is repeated.
        flip: mirror left and right.
        erase: share of images in which rectangles are covered, by images of class 0 or by one grey: a guide
            that has learned to do with any part of the shortcut looks at all of it.
        noise: largest spread of Gaussian noise that is added.
        blur: share of images that are smoothed.
        corners: share of images whose corners are darkened, as by the round view of a lens: where such images
            go with the shortcut, a guide learns the corners instead of it.
        tint: largest change of a channel's brightness, as a share: likewise for the colour of the light.
        attack: largest root mean square of a change that is made against the network; see attack.py.
    """

    shift: int = 0
    flip: bool = False
    erase: float = 0.0
    noise: float = 0.0
    blur: float = 0.0
    corners: float = 0.0
    tint: float = 0.0
    attack: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("erase", "blur", "corners", "tint"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise InputError(expected(f"{name} of the augmentation", "a share from 0 to 1", repr(value)))
        if not isinstance(self.shift, int) or self.shift < 0:
            raise InputError(expected("shift of the augmentation", "whole pixels >= 0", repr(self.shift)))
        for name in ("noise", "attack"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise InputError(expected(f"{name} of the augmentation", "a spread from 0 to 1", repr(value)))

    def __call__(self, x: Tensor, labels: Tensor, random: torch.Generator) -> Tensor:
        """Change a batch; attacks are left to who has the network."""
        if self.shift:
            x = shifted(x, self.shift, random)
        if self.flip:
            x = torch.where(_chosen(x, 0.5, random), x.flip(3), x)
        if self.erase:
            x = erased(x, labels, self.erase, random)
        if self.corners:
            x = torch.where(_chosen(x, self.corners, random), with_dark_corners(x, random), x)
        if self.tint:
            x = tinted(x, self.tint, random)
        if self.blur:
            x = torch.where(_chosen(x, self.blur, random), avg_pool2d(x, 3, 1, 1, count_include_pad=False), x)
        if self.noise:
            spread = self.noise * torch.rand((len(x), 1, 1, 1), generator=random)
            x = x + spread * torch.randn(x.shape, generator=random)
        return x

    def describe(self) -> dict[str, float]:
        """What is written down; of the newer changes only those in use, so that older runs go on."""
        newer = ("corners", "tint", "attack")
        return {name: value for name, value in vars(self).items() if value or name not in newer}


def shifted(x: Tensor, most: int, random: torch.Generator) -> Tensor:
    """Shift each image by up to `most` pixels each way, repeating its border."""
    height, width = x.shape[2:]
    move = torch.randint(-most, most + 1, (2, len(x), 1), generator=random)
    rows = (torch.arange(height) + move[0]).clamp(0, height - 1)
    columns = (torch.arange(width) + move[1]).clamp(0, width - 1)
    return x[torch.arange(len(x))[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def erased(x: Tensor, labels: Tensor, share: float, random: torch.Generator) -> Tensor:
    """Cover one to three rectangles of some images with parts of images of class 0, or with a constant."""
    clean = (labels == 0).nonzero()[:, 0]
    donors = x[clean[torch.randint(len(clean), (len(x),), generator=random)]] if len(clean) else x
    grey = torch.rand((len(x), 1, 1, 1), generator=random) * 2 - 1
    cover = torch.where(_chosen(x, 0.3, random) | (len(clean) == 0), grey.expand_as(x), donors)
    covered = torch.zeros_like(x[:, :1], dtype=torch.bool)
    count = torch.randint(1, MOST_RECTANGLES + 1, (len(x),), generator=random)
    for number in range(MOST_RECTANGLES):
        covered |= rectangles(x, random) & (count > number).view(-1, 1, 1, 1)
    return torch.where(covered & _chosen(x, share, random), cover, x)


def rectangles(x: Tensor, random: torch.Generator) -> Tensor:
    """One random rectangle for each image, of a tenth to half of each side."""
    masks = []
    for side in x.shape[2:]:
        length = (side * (0.1 + 0.4 * torch.rand((len(x), 1), generator=random))).long().clamp(min=1)
        first = (torch.rand((len(x), 1), generator=random) * (side - length + 1)).long()
        place = torch.arange(side)
        masks.append((place >= first) & (place < first + length))
    return (masks[0][:, :, None] & masks[1][:, None, :])[:, None]


def with_dark_corners(x: Tensor, random: torch.Generator) -> Tensor:
    """Darken what lies outside an ellipse about the middle of each image, to a random level, softly."""

    def drawn(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand((len(x), 1, 1, 1), generator=random)

    down, across = (torch.linspace(-1, 1, side) for side in x.shape[2:])
    width = drawn(1.0, 1.4)
    height = width * drawn(0.95, 1.3)
    away_y = (down.view(1, 1, -1, 1) - drawn(-0.1, 0.1)) / height
    away_x = (across - drawn(-0.1, 0.1)) / width
    outside = ((torch.hypot(away_y, away_x) - 1) / drawn(0.02, 0.3)).clamp(0, 1)
    return x - (x + 1) * outside * drawn(0.4, 1.0)


def tinted(x: Tensor, most: float, random: torch.Generator) -> Tensor:
    """Make each channel of each image brighter or darker."""
    gain = 1 + most * (2 * torch.rand((*x.shape[:2], 1, 1), generator=random) - 1)
    return ((x + 1) * gain - 1).clamp(-1, 1)


def _chosen(x: Tensor, share: float, random: torch.Generator) -> Tensor:
    return (torch.rand(len(x), generator=random) < share).view(-1, 1, 1, 1)
