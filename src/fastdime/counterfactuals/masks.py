"""Where an image may change. A mask is True where it may; rules look at one step and answer with a mask."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import max_pool2d

from fastdime.counterfactuals.step import Estimate, Masks, Step

TINY = 1e-9  # a difference below this is none


@runtime_checkable
class MaskRule(Protocol):
    """Answers, in each step, where the image may change (None: everywhere)."""

    def __call__(self, step: Step, estimate: Estimate, class_gradient: Tensor | None) -> Masks | None:
        """Return the masks of this step."""


def dilate(mask: Float[Tensor, "b k h w"], side: int) -> Float[Tensor, "b k h w"]:
    """Spread large values over a square."""
    return max_pool2d(mask, side, stride=1, padding=side // 2)


def difference_map(x: Float[Tensor, "b c h w"], image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 1 h w"]:
    """Absolute difference summed over channels, over its largest value in each image (paper, delta in eq. 6).

    Two equal images have no place to prefer: the map is 1 everywhere, so that nothing is ruled out.
    """
    difference = (x - image).abs().sum(1, keepdim=True)
    largest = difference.amax((1, 2, 3), keepdim=True)
    return torch.where(largest > 0, difference / largest, 1.0)


def difference_mask(
    x: Float[Tensor, "b c h w"], image: Float[Tensor, "b c h w"], dilation: int, threshold: float
) -> Bool[Tensor, "b 1 h w"]:
    """Normalise, dilate, threshold."""
    return dilate(difference_map(x, image), dilation) >= threshold


def grown(
    strength: Float[Tensor, "b 1 h w"], sure: float | Tensor, faint: float | Tensor
) -> Bool[Tensor, "b 1 h w"]:
    """Mark what is sure, and what is faint but hangs together with it: the thin end of a bright thing.

    >>> grown(torch.tensor([[[[1.0, 0.2, 0.2, 0.0, 0.2]]]]), 0.5, 0.1).flatten().tolist()
    [True, True, True, False, False]
    """
    from scipy.ndimage import label

    found, allowed = ((strength >= limit).cpu().numpy() for limit in (sure, faint))
    kept = np.zeros_like(found)
    for row in range(len(strength)):
        parts, _ = label(allowed[row, 0], np.ones((3, 3)))
        kept[row, 0] = np.isin(parts, parts[found[row, 0] & allowed[row, 0]])
    return torch.from_numpy(kept).to(strength.device)


def strongest(
    strength: Float[Tensor, "b 1 h w"], sure: float, faint: float, area: float
) -> Bool[Tensor, "b 1 h w"]:
    """Mark what is sure and what hangs together with it, on no more than a share of the image.

    Args:
        sure, faint: shares of the largest value of the image.
        area: where more than this share of the pixels is faint, it takes more to be.
    """
    share = strength / strength.amax((1, 2, 3), keepdim=True).clamp(min=TINY)
    pixels = share[0].numel()
    rank = max(1, pixels - int(area * pixels))
    lowest = share.flatten(1).kthvalue(rank, dim=1).values.view(-1, 1, 1, 1).clamp(min=faint)
    return grown(share, lowest.clamp(min=sure), lowest)


def without_holes(mask: Bool[Tensor, "b 1 h w"]) -> Bool[Tensor, "b 1 h w"]:
    """Add what is enclosed on all sides."""
    from scipy.ndimage import binary_fill_holes

    full = [binary_fill_holes(image[0]) for image in mask.cpu().numpy()]
    return torch.from_numpy(np.stack(full))[:, None].to(mask.device)


def top_mask(strength: Float[Tensor, "b k h w"], count: int, dilation: int) -> Bool[Tensor, "b k h w"]:
    """Mark the `count` largest values of each plane, then dilate. Ties go to the first place."""
    flat = strength.flatten(2)
    places = flat.argsort(dim=2, descending=True, stable=True)[..., :count]
    marked = torch.zeros_like(flat).scatter_(2, places, 1.0).view_as(strength)
    return dilate(marked, dilation) > 0


class NoMask:
    """The image may change everywhere."""

    def __call__(self, step: Step, estimate: Estimate, class_gradient: Tensor | None) -> Masks | None:
        """Return nothing."""
        return None


@dataclass(frozen=True)
class FixedMask:
    """The same mask in all steps."""

    mask: Bool[Tensor, "b 1 h w"]

    def __call__(self, step: Step, estimate: Estimate, class_gradient: Tensor | None) -> Masks | None:
        """Return the given mask."""
        return Masks(self.mask, self.mask)


@dataclass(frozen=True)
class DifferenceMask:
    """Where the clean estimate differs from the input, from a level on (FastDiME's self-optimised mask)."""

    from_level: int
    dilation: int
    threshold: float

    def __call__(self, step: Step, estimate: Estimate, class_gradient: Tensor | None) -> Masks | None:
        """Compare the clean estimate of this step with the input."""
        if step.t > self.from_level:
            return None
        mask = difference_mask(step.x, estimate.kept, self.dilation, self.threshold)
        return Masks(mask, mask)


@dataclass(frozen=True)
class TopGradientMask:
    """The pixels with the largest class gradient, and a share of those for the clean image (MaskDiME)."""

    top_share: float
    inner_share: float
    dilation: int
    per_channel: bool

    def __call__(self, step: Step, estimate: Estimate, class_gradient: Tensor | None) -> Masks | None:
        """Rank the pixels anew; without a gradient the masks of the step before stay."""
        if class_gradient is None:
            return step.carried
        return self.masks(class_gradient)

    def masks(self, class_gradient: Float[Tensor, "b c h w"]) -> Masks:
        """Make both masks from a class gradient."""
        strength = class_gradient.abs()
        if not self.per_channel:
            strength = strength.mean(1, keepdim=True)
        height, width = strength.shape[2:]
        count = max(1, int(self.top_share * height * width))
        inner = max(1, int(self.inner_share * count))
        return Masks(top_mask(strength, count, self.dilation), top_mask(strength, inner, self.dilation))
