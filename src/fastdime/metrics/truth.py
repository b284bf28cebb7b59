"""Counterfactuals against the exact ones, which phantoms have: one number an image.

Images come in [-1, 1] and distances are on the [0, 1] scale. A region is where the image and its exact
counterfactual differ; what the region is empty for has no number, and is NaN.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import max_pool2d

from fastdime.errors import InputError, expected
from fastdime.metrics.closeness import check_pair

MARGIN = 3  # pixels around the true region that do not count as outside
Region = Bool[Tensor, "b 1 h w"]
Scores = Float[Tensor, " b"]


@dataclass(frozen=True)
class Inside:
    """Sums over some pixels of each image, from which means of an image and of all images follow."""

    sums: Float[Tensor, " b"]
    pixels: Float[Tensor, " b"]

    @property
    def per_image(self) -> Scores:
        """Mean over the pixels of each image; NaN where there are none."""
        return self.sums / self.pixels

    @property
    def pooled(self) -> float:
        """Mean over the pixels of all images; an image with many counts for more."""
        return float(self.sums.sum() / self.pixels.sum())


def difference_inside(x: Tensor, other: Tensor, where: Tensor) -> Inside:
    """Sum how much two images differ over the pixels of a region, on the [0, 1] scale.

    >>> where = torch.tensor([[[[True, False]]]])
    >>> difference_inside(torch.zeros(1, 3, 1, 2), torch.ones(1, 3, 1, 2), where).pooled
    0.5
    """
    difference = pixel_difference(x, other)
    check_region(where, x)
    return Inside((difference * where).sum((1, 2, 3)), where.sum((1, 2, 3)).double())


def pixel_difference(x: Tensor, other: Tensor) -> Float[Tensor, "b 1 h w"]:
    """Return how much each pixel of two images differs, mean over its channels, on the [0, 1] scale.

    >>> pixel_difference(torch.zeros(1, 3, 1, 1), torch.ones(1, 3, 1, 1)).item()
    0.5
    """
    check_pair(x, other)
    return (x.double() - other.double()).abs().mean(1, keepdim=True) / 2


def region_error(x_cf: Tensor, truth: Tensor, region: Tensor) -> Scores:
    """Return the mean error against the exact counterfactual inside the true region; NaN if it is empty."""
    return difference_inside(x_cf, truth, region).per_image


def region_error_ratio(x: Tensor, x_cf: Tensor, truth: Tensor, region: Tensor) -> Scores:
    """Return the error inside the true region over that of doing nothing: 0 = exact, 1 = no better.

    NaN where the region is empty, or where there is nothing to mend in it.

    >>> x, x_cf, truth = (torch.full((1, 1, 2, 2), value) for value in (1.0, 0.0, -1.0))
    >>> region_error_ratio(x, x_cf, truth, torch.ones(1, 1, 2, 2, dtype=torch.bool)).tolist()
    [0.5]
    """
    error, nothing = (difference_inside(made, truth, region).sums for made in (x_cf, x))
    return _ratio(error, nothing)


def pooled_error_ratio(x: Tensor, x_cf: Tensor, truth: Tensor, where: Tensor) -> float:
    """Return the error over that of doing nothing, both over the pixels of all images; NaN as above."""
    error, nothing = (difference_inside(made, truth, where).sums.sum() for made in (x_cf, x))
    return float(_ratio(error, nothing))


def outside_change(x: Tensor, x_cf: Tensor, region: Tensor, margin: int = MARGIN) -> Scores:
    """Return the mean change further than a margin from the true region; NaN if nothing is that far."""
    return difference_inside(x, x_cf, ~widened(region, margin)).per_image


def widened(region: Tensor, pixels: int) -> Region:
    """Add a margin to regions, as wide along both axes and along the diagonal.

    >>> widened(torch.tensor([[[[True, False, False]]]]), 1).tolist()
    [[[[True, True, False]]]]
    """
    if pixels < 0:
        raise InputError(expected("margin", "a number of pixels >= 0", pixels))
    wide: Tensor = max_pool2d(region.float(), 2 * pixels + 1, 1, pixels)
    return wide > 0.5


def mask_overlap(mask: Tensor, region: Tensor) -> Scores:
    """Return the overlap of mask and true region over their union; NaN where both are empty.

    Args:
        mask: (b, 1, h, w), True or 1 where the method was allowed to change the image.

    >>> mask, region = torch.tensor([[[[1, 1, 0]]]]), torch.tensor([[[[False, True, True]]]])
    >>> round(float(mask_overlap(mask, region)), 3)
    0.333
    """
    chosen = _check_mask(mask, region)
    return (chosen & region).sum((1, 2, 3)).double() / (chosen | region).sum((1, 2, 3))


def mask_recall(mask: Tensor, region: Tensor) -> Scores:
    """Return the share of the true region that the mask covers; NaN where the region is empty.

    >>> mask, region = torch.tensor([[[[1, 1, 0]]]]), torch.tensor([[[[False, True, True]]]])
    >>> mask_recall(mask, region).tolist()
    [0.5]
    """
    chosen = _check_mask(mask, region)
    return (chosen & region).sum((1, 2, 3)).double() / region.sum((1, 2, 3))


def placebo_change(x: Tensor, x_cf: Tensor, placebo_region: Tensor, shows: Tensor, region: Tensor) -> Scores:
    """Return the mean change of a visible object that has nothing to do with the shortcut.

    NaN where the placebo does not show, for then there is nothing to leave alone. Pixels that the shortcut
    shares with it do not count, for the exact counterfactual changes them too; NaN where no others are left.

    Args:
        placebo_region: where the placebo shows, or would show.
        shows: whether it does.
        region: the true region of the shortcut.
    """
    check_region(region, x)
    if shows.shape != x.shape[:1] or shows.dtype != torch.bool:
        got = f"{shows.dtype} {tuple(shows.shape)}"
        raise InputError(expected("shows", f"True or False for each of {len(x)} images", got))
    alone = placebo_region & ~region & shows.view(-1, 1, 1, 1)
    return difference_inside(x, x_cf, alone).per_image


def residual(before: Scores, after: Scores, exact: Scores) -> Scores:
    """Return how much of the shortcut is left: 0 = as in the exact counterfactual, 1 = nothing was done.

    It serves every score of how clearly the shortcut shows: a measurement, or the log-odds of an oracle.
    Below 0 more was done than the exact counterfactual does. NaN where the score is the same before and in
    the exact counterfactual.

    >>> residual(torch.tensor([4.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])).tolist()
    [0.25, nan]
    """
    for what, scores in (("before", before), ("after", after), ("exact", exact)):
        if scores.ndim != 1 or scores.shape != before.shape or not scores.isfinite().all():
            got = f"shape {tuple(scores.shape)}" if scores.shape != before.shape else "NaN or infinity"
            raise InputError(expected(f"scores {what}", f"{len(before)} finite numbers, one an image", got))
    return _ratio(after - exact, before - exact)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Divide; NaN where there is nothing to divide by."""
    return torch.where(whole != 0, part / whole, torch.nan)


def check_region(region: Tensor, x: Tensor) -> None:
    """Refuse what is not a region of some images."""
    wanted = (len(x), 1, *x.shape[2:])
    if region.shape != wanted or region.dtype != torch.bool:
        got = f"{region.dtype} {tuple(region.shape)}"
        raise InputError(expected("region", f"True or False of shape {wanted}", got))


def _check_mask(mask: Tensor, region: Tensor) -> Region:
    if region.ndim != 4 or len(region) == 0:
        raise InputError(expected("region", "shape (b, 1, h, w)", tuple(region.shape)))
    check_region(region, region)
    if mask.shape != region.shape or ((mask != 0) & (mask != 1)).any():
        got = f"{mask.dtype} {tuple(mask.shape)}"
        raise InputError(expected("mask", f"1 or 0 of shape {tuple(region.shape)}", got))
    return mask != 0
