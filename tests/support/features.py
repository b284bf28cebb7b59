"""Small feature networks, for `module:function`."""

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fastdime.classifiers.wrapper import ImageClassifier


def patches(x: Tensor) -> Tensor:
    """Mean brightness of 3 x 3 parts of an image."""
    return adaptive_avg_pool2d(x.mean(1, keepdim=True), 3).flatten(1)


def broken(x: Tensor) -> Tensor:
    """No number at all."""
    return torch.full((len(x), 4), torch.nan)


def signs(x: Tensor) -> Tensor:
    """Three attributes: bright above, bright below, bright at all."""
    half = x.shape[2] // 2
    return torch.stack([part.mean((1, 2, 3)) for part in (x[:, :, :half], x[:, :, half:], x)], 1)


def failing(x: Tensor) -> Tensor:
    """A network with a fault."""
    raise RuntimeError("no such thing")


def no_attributes(x: Tensor) -> Tensor:
    """Attributes that are not known."""
    return torch.full((len(x), 2), torch.nan)


def dark_middle_light() -> ImageClassifier:
    """Three classes by brightness."""
    return ImageClassifier(_by_brightness, kind="multiclass")


def _by_brightness(x: Tensor) -> Tensor:
    light = x.mean((1, 2, 3))
    return 20 * torch.stack([-light, 0.2 - 4 * light.abs(), light], 1)


def light() -> ImageClassifier:
    """Two classes by brightness, for images of any size."""
    return ImageClassifier(_log_odds)


def _log_odds(x: Tensor) -> Tensor:
    return 20 * x.mean((1, 2, 3))[:, None]
