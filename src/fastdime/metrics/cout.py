"""COUT (Khorram and Fuxin 2022): do few pixels of the counterfactual suffice to change the class?"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastdime.errors import InputError, expected
from fastdime.metrics.closeness import check_pair
from fastdime.types import Images

STEPS = 50
Probabilities = Callable[[Images], Float[Tensor, "b k"]]
Classes = Int[Tensor, " b"]


@dataclass(frozen=True)
class Cout:
    """The score of each image and the curves that it is made of.

    Attributes:
        score: area under the target curve minus area under the original curve; high is good.
        original_curve, target_curve: probability of the two classes after 0, 1, ... steps of pixels.
        share: share of pixels replaced at each point, as the published program counts: the last step counts
            in full, so the end can lie a little above 1.
    """

    score: Float[Tensor, " b"]
    original_curve: Float[Tensor, "b points"]
    target_curve: Float[Tensor, "b points"]
    share: Float[Tensor, " points"]


def cout(
    x: Tensor,
    x_cf: Tensor,
    probabilities: Probabilities,
    original: int | Tensor,
    target: int | Tensor,
    steps: int = STEPS,
) -> Cout:
    """Replace pixels by those of the counterfactual, most changed first, and follow both classes.

    Each step replaces max(1, pixels // steps) pixels, so there are `steps` steps or a few more; pixels that
    change equally go in reading order. An image that equals its counterfactual has flat curves, and the
    score p(target) - p(original) times the width of the curves.

    Args:
        probabilities: gives the probability of each class, (b, k), for images in [-1, 1].
        original: class of each image before, for example the prediction of the classifier.
        target: class wanted.

    Raises:
        InputError: images, classes or probabilities are not of the expected shape and range.

    >>> half = lambda images: torch.full((len(images), 2), 0.5)
    >>> cout(torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8), half, 0, 1).score.tolist()
    [0.0]
    """
    check_pair(x, x_cf)
    if steps < 1:
        raise InputError(expected("steps", "a whole number >= 1", steps))
    before, after = _classes("original", original, x), _classes("target", target, x)
    pixels = x.shape[2] * x.shape[3]
    step = max(1, pixels // steps)
    rank = _ranks(difference_map(x, x_cf))
    points = []
    for replaced in range(0, pixels + step, step):
        p = _asked(probabilities, torch.where(rank < replaced, x_cf, x).detach(), before, after)
        points.append(torch.stack([_picked(p, before), _picked(p, after)]))
    original_curve, target_curve = torch.stack(points, dim=2).unbind()
    width = step / pixels
    share = torch.arange(len(points)).to(original_curve) * width
    return Cout(_area(target_curve - original_curve) * width, original_curve, target_curve, share)


def difference_map(x: Tensor, x_cf: Tensor) -> Float[Tensor, "b 1 h w"]:
    """Return the change of each pixel, summed over channels, from 0 (least) to 1 (most) in each image.

    It is 0 everywhere where all pixels change equally, also where none does.

    >>> difference_map(torch.zeros(1, 1, 1, 2), torch.tensor([[[[0.2, -0.4]]]])).tolist()
    [[[[0.0, 1.0]]]]
    """
    check_pair(x, x_cf)
    change = (x_cf.detach() - x.detach()).abs().sum(1, keepdim=True)
    change = change - change.amin((2, 3), keepdim=True)
    most = change.amax((2, 3), keepdim=True)
    return torch.where(most > 0, change / most, torch.zeros_like(change))


def _ranks(change: Float[Tensor, "b 1 h w"]) -> Int[Tensor, "b 1 h w"]:
    """Number the pixels of each image from the most changed one; equal ones in reading order."""
    order = change.flatten(1).argsort(dim=1, descending=True, stable=True)
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter(1, order, places).view(change.shape)


def _area(curve: Float[Tensor, "b points"]) -> Float[Tensor, " b"]:
    """Return the area under a curve by the trapezoid rule, for steps of width 1."""
    return curve.sum(1) - (curve[:, 0] + curve[:, -1]) / 2


def _classes(what: str, given: int | Tensor, x: Images) -> Classes:
    classes = torch.as_tensor(given, device=x.device)
    if classes.ndim == 0:
        classes = classes.expand(len(x))
    if classes.shape != (len(x),) or classes.is_floating_point() or classes.dtype == torch.bool:
        got = f"{classes.dtype} of shape {tuple(classes.shape)}"
        raise InputError(expected(what, f"one class or {len(x)} classes, as whole numbers", got))
    return classes.long()


@torch.no_grad()
def _asked(probabilities: Probabilities, images: Images, *classes: Classes) -> Float[Tensor, "b k"]:
    """Ask the classifier, and check what it says."""
    p = probabilities(images)
    if p.ndim != 2 or len(p) != len(images):
        raise InputError(expected("probabilities", f"shape ({len(images)}, classes)", tuple(p.shape)))
    if not ((p >= 0) & (p <= 1 + 1e-5)).all():
        low, high = (float(end) for end in p.detach().aminmax())
        raise InputError(expected("probabilities", "values in [0, 1]", f"[{low:.3g}, {high:.3g}]"))
    for given in classes:
        if given.min() < 0 or given.max() >= p.shape[1]:
            wrong = int(given.min()) if given.min() < 0 else int(given.max())
            raise InputError(expected("class", f"a number from 0 to {p.shape[1] - 1}", wrong))
    return p


def _picked(p: Float[Tensor, "b k"], classes: Classes) -> Float[Tensor, " b"]:
    return p.gather(1, classes[:, None])[:, 0].double().cpu()
