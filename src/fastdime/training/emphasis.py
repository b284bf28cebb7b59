"""Where the errors of a denoiser count most: where a guide looks, which is where images will be changed."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from fastdime.bundles import CLASSIFIER, part_of
from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.errors import InputError, expected
from fastdime.training.coverage import input_gradient
from fastdime.training.pictures import Pictures
from fastdime.weights import weights_hash

MOST = 10.0  # as much as where the guide never looks
IMAGES, BATCH = 256, 64  # images that are looked at
SMOOTHED = 0.08  # of the image's side
PLATEAU = 0.97  # share of pixels below the strength that counts as full attention


def open_guide(source: str) -> ImageClassifier:
    """Open a classifier, that of a bundle, or that of a training."""
    return load_classifier(part_of(source, CLASSIFIER))


@dataclass(frozen=True)
class Emphasis:
    """A weight for each pixel, (1, 1, h, w) with mean 1, and the hash of the guide that it comes from."""

    weight: Float[Tensor, "1 1 h w"]
    guide: str


def emphasis(guide: ImageClassifier, pictures: Pictures, flip: bool = False) -> Emphasis:
    """Weigh pixels by how much a guide looks at them, on average over images.

    It is one map for all images, so what a network learns is the same in the end: a weight that depended on
    the image would pull its answers towards images with much weight.

    Args:
        flip: images are mirrored in training, so the map is made symmetric.

    Raises:
        InputError: the guide's answer does not depend on the images.
    """
    rows = torch.linspace(0, len(pictures) - 1, min(IMAGES, len(pictures))).long()
    looks = [
        input_gradient(guide, pictures.x(some)).abs().sum((0, 1), keepdim=True)
        for some in torch.split(rows, BATCH)
    ]
    look = torch.cat(looks).mean(0, keepdim=True)
    if flip:
        look = look + look.flip(3)
    reach = round(SMOOTHED * min(look.shape[2:]) / 2)
    look = avg_pool2d(look, 2 * reach + 1, 1, reach, count_include_pad=False)
    full = look.flatten().quantile(PLATEAU)
    if not full > 0:
        raise InputError(expected("--emphasis", "a guide whose answer depends on the image", "no gradient"))
    weight = 1 + (MOST - 1) * (look / full).clamp(max=1)
    network = guide.module
    name = weights_hash(network) if isinstance(network, nn.Module) else "a function"
    return Emphasis(weight / weight.mean(), name)
