"""Which part of the true shortcut a guide looks at, where the truth is known."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data import io
from fastdime.data.phantoms.write import REGION, truth_path
from fastdime.data.table import Table
from fastdime.errors import InputError, expected
from fastdime.scores import log_odds

SEEN = 0.1  # share of the strongest gradient from which a pixel counts as looked at
MOST = 64  # images


@dataclass(frozen=True)
class Coverage:
    """Means over images with the shortcut.

    Attributes:
        images: how many there were.
        gradient_inside: share of the gradient's energy that lies in the true region.
        region_covered: share of the region's pixels with a gradient of at least a tenth of the strongest.
        region_area: share of the image that the region takes: what gradient_inside would be by chance.
    """

    images: int
    gradient_inside: float
    region_covered: float
    region_area: float


def coverage(classifier: ImageClassifier, x: Tensor, region: Tensor) -> Coverage:
    """Compare the gradient of a guide's answer with where the shortcut is.

    Args:
        x: images (b, c, h, w) that show the shortcut.
        region: (b, 1, h, w), True where it shows.
    """
    if x.shape[2:] != region.shape[2:] or len(x) != len(region) or not bool(region.flatten(1).any(1).all()):
        got = f"{tuple(x.shape)} and {tuple(region.shape)}"
        raise InputError(expected("images and regions", "pairs of one size, no region empty", got))
    energy = input_gradient(classifier, x).pow(2).sum(1, keepdim=True)
    inside = (energy * region).sum((1, 2, 3)) / energy.sum((1, 2, 3)).clamp(min=1e-30)
    strength = avg_pool2d(
        energy, 3, 1, 1, count_include_pad=False
    ).sqrt()  # strides leave a chequered gradient
    seen = strength >= SEEN * strength.amax((1, 2, 3), keepdim=True)
    covered = (seen & region).sum((1, 2, 3)) / region.sum((1, 2, 3))
    return Coverage(len(x), _mean(inside), _mean(covered), _mean(region))


def phantom_coverage(
    classifier: ImageClassifier, table: Table, shortcut: str, size: int | None
) -> Coverage | None:
    """Measure coverage on images of a phantom on disk; None if the truth about them is not there.

    Args:
        shortcut: the label column that says which images show it.
        size: height and width that images are fitted to; None = as they are.
    """
    shown = [row for row, value in enumerate(table.column(shortcut)) if value == 1][:MOST]
    pairs = []
    for row in shown:
        path = table.paths[row]
        truth = truth_path(path.parents[1], REGION, path.stem)
        if not truth.is_file():
            return None
        region = io.read_mask(truth, size=size)
        if region.any():
            pairs.append((io.read(path, size=size).x, region))
    if not pairs:
        return None
    x, region = (torch.stack(part) for part in zip(*pairs, strict=True))
    return coverage(classifier, x, region)


def input_gradient(classifier: ImageClassifier, x: Tensor) -> Tensor:
    """Return how the log-odds that a guide gives class 1 depend on the pixels of each image."""
    leaf = x.detach().clone().requires_grad_()
    time = torch.zeros(len(x), dtype=torch.int64)
    with torch.enable_grad():
        [gradient] = torch.autograd.grad(log_odds(classifier.logits(leaf, time), time + 1).sum(), leaf)
    return gradient


def _mean(values: Tensor) -> float:
    return round(float(values.float().mean()), 4)
