"""VGG-19 features for the perceptual loss, from a file with its ImageNet weights."""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastdime.weights import load_into, read_weights

# VGG-19 up to conv3_4: channels of each 3x3 convolution, "M" for max-pooling.
PLAN: tuple[int | str, ...] = (64, 64, "M", 128, 128, "M", 256, 256, 256, 256)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def vgg19_trunk() -> nn.Sequential:
    """Build VGG-19 up to the ReLU after conv3_4, its modules numbered as torchvision numbers them."""
    layers: list[nn.Module] = []
    channels = 3
    for entry in PLAN:
        if isinstance(entry, int):
            layers += [nn.Conv2d(channels, entry, 3, padding=1), nn.ReLU()]
            channels = entry
        else:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


class Perceptual(nn.Module):
    """Features of images in [-1, 1]: ImageNet normalisation, then a trunk; gray counts as three channels."""

    mean: Tensor
    std: Tensor

    def __init__(self, trunk: nn.Module) -> None:
        """Keep the trunk."""
        super().__init__()
        self.trunk = trunk
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """Return the features."""
        shown = (x.clamp(-1, 1) + 1) / 2
        features: Tensor = self.trunk((shown.expand(-1, 3, -1, -1) - self.mean) / self.std)
        return features


def vgg19_features(path: str | Path) -> Perceptual:
    """Load the published perceptual features: VGG-19 up to the ReLU after conv3_4.

    Args:
        path: torchvision's `vgg19` weights, whole or only its `features`.

    Raises:
        CheckpointError: the file cannot be read, or holds another network.
    """
    weights = {name.removeprefix("features."): value for name, value in read_weights(path).items()}
    # Random weights come first, and are no reason to move the random numbers of the user.
    with torch.random.fork_rng(devices=[]):
        trunk = vgg19_trunk()
    # A whole VGG-19 has more stages and a classifier; only what the trunk needs is taken.
    load_into(trunk, {name: weights[name] for name in trunk.state_dict() if name in weights}, path)
    return Perceptual(trunk.eval())
