"""VGG-19 features for the perceptual loss, from a file with its ImageNet weights."""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastdime.weights import load_into, read_weights

# The first four stages of VGG-19: channels of each 3x3 convolution, "M" for max-pooling.
PLAN: tuple[int | str, ...] = (64, 64, "M", 128, 128, "M", 256, 256, 256, 256, "M", 512, 512, 512, 512)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def vgg19_trunk(modules: int = 18) -> nn.Sequential:
    """Build the first modules of VGG-19, numbered as torchvision numbers them."""
    layers: list[nn.Module] = []
    channels = 3
    for entry in PLAN:
        if isinstance(entry, int):
            layers += [nn.Conv2d(channels, entry, 3, padding=1), nn.ReLU()]
            channels = entry
        else:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers[:modules])


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


def vgg19_features(path: str | Path, modules: int = 18) -> Perceptual:
    """Load the published perceptual features: VGG-19 up to the ReLU after conv3_4.

    Args:
        path: torchvision's `vgg19` weights, whole or only its `features`.
    """
    trunk = vgg19_trunk(modules)
    weights = {name.removeprefix("features."): value for name, value in read_weights(path).items()}
    wanted = trunk.state_dict()
    # A whole VGG-19 has more stages and a classifier; only what the trunk needs is taken.
    surplus_allowed = {name: value for name, value in weights.items() if name in wanted}
    load_into(trunk, surplus_allowed, path)
    return Perceptual(trunk.eval())
