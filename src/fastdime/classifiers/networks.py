"""Networks that are known by name, and how the names in published weights map to theirs."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from fastdime.classifiers.encoder import POOL, AttentionPool, GuidedEncoder, encoder_from_weights
from fastdime.diffusion.guided_unet import guided_config
from fastdime.diffusion.unet import Heads, Layout, build_unet
from fastdime.errors import InputError, expected

Weights = dict[str, Tensor]
Conversion = Callable[..., nn.Module]  # called with the weights and path=, where they come from
Count = Annotated[int, Field(ge=1)]

GROUPS = 8  # of the group norms of the small network
PLACED_STRIDE = 8  # pixels of one place of placed-cnn


def resnet18(channels: Count = 3, outputs: Count = 1) -> nn.Module:
    """Return a ResNet-18; the names and numbers of its weights are torchvision's."""
    return _resnet("basic", [2, 2, 2, 2], channels, outputs)


def resnet50(channels: Count = 3, outputs: Count = 1) -> nn.Module:
    """Return a ResNet-50; the names and numbers of its weights are torchvision's."""
    return _resnet("bottleneck", [3, 4, 6, 3], channels, outputs)


def _resnet(block: str, layers: list[int], channels: int, outputs: int) -> nn.Module:
    from monai.networks.nets import ResNet

    # MONAI's own resnet18() differs from torchvision's: stride 1 at the entry and shortcuts without weights.
    network: nn.Module = ResNet(
        block,
        layers,
        [64, 128, 256, 512],
        spatial_dims=2,
        n_input_channels=channels,
        conv1_t_size=7,
        conv1_t_stride=2,
        shortcut_type="B",
        bias_downsample=False,
        num_classes=outputs,
    )
    return network


def densenet121(channels: Count = 3, outputs: Count = 1) -> nn.Module:
    """Return a DenseNet-121 that computes what torchvision's does."""
    from monai.networks.nets import DenseNet121

    network: nn.Module = DenseNet121(spatial_dims=2, in_channels=channels, out_channels=outputs)
    return network


def small_cnn(channels: Count = 3, outputs: Count = 1, width: Count = 32) -> nn.Module:
    """Return a network of four convolutions for images from 16 pixels (about 240 thousand weights)."""
    if width % GROUPS:
        raise InputError(expected("width of small-cnn", f"a multiple of {GROUPS}", width))
    network = nn.Sequential()
    inside = channels
    for number, (factor, stride) in enumerate([(1, 1), (2, 2), (4, 2), (4, 2)], start=1):
        network.add_module(f"block{number}", _block(inside, factor * width, stride))
        inside = factor * width
    network.add_module("pool", nn.AdaptiveAvgPool2d(1))
    network.add_module("flat", nn.Flatten())
    network.add_module("head", nn.Linear(inside, outputs))
    return network


def _block(inside: int, outside: int, stride: int) -> nn.Module:
    # Group norm, not batch norm: an image scores the same in any batch and in training.
    conv = nn.Conv2d(inside, outside, kernel_size=3, stride=stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(GROUPS, outside), nn.SiLU())


class _Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = _normed(inside, outside, 3, stride)
        self.second = _normed(outside, outside, 3, 1)
        self.past = (
            nn.Identity() if inside == outside and stride == 1 else _normed(inside, outside, 1, stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.second(self.first(x).relu()) + self.past(x)).relu()
        return out


def _normed(inside: int, outside: int, side: int, stride: int) -> nn.Module:
    conv = nn.Conv2d(inside, outside, side, stride, side // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside))


class _MeanAndMax(nn.Module):
    """Pool each channel twice: what there is on the whole, and what stands out somewhere."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)


def small_resnet(channels: Count = 3, outputs: Count = 1, width: Count = 16) -> nn.Module:
    """Return a residual network with batch norm, about 80 thousand weights; unlike small-cnn in all parts."""
    network = nn.Sequential()
    network.add_module("stem", _normed(channels, width, 5, 2))
    for number, (inside, outside, stride) in enumerate([(1, 1, 1), (1, 2, 2), (2, 4, 2)], start=1):
        network.add_module(f"block{number}", _Residual(inside * width, outside * width, stride))
    network.add_module("pool", _MeanAndMax())
    network.add_module("head", nn.Linear(8 * width, outputs))
    return network


class _Added(nn.Module):
    """Convolutions beside a shortcut, without norms."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.convs = nn.Sequential()
        for _ in range(count):
            self.convs.extend([nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.convs(x)
        return out


def placed_cnn(image_size: Count, channels: Count = 3, outputs: Count = 1, width: Count = 21) -> nn.Module:
    """Return a residual network without norms whose head knows places, about 220 thousand weights.

    For images of one size that are roughly aligned. Norms and pooling tie all pixels together, so that
    gradients reach where nothing is to be changed.
    """
    if image_size % PLACED_STRIDE:
        raise InputError(expected("image_size of placed-cnn", f"a multiple of {PLACED_STRIDE}", image_size))
    network = nn.Sequential()
    inside = channels
    for number, (factor, side, count) in enumerate([(3, 6, 1), (8, 3, 2), (11, 3, 2)], start=1):
        outside = max(1, width * factor // 3)
        conv = nn.Conv2d(inside, outside, side, stride=2, padding=(side - 1) // 2)
        network.add_module(f"block{number}", nn.Sequential(conv, _Added(outside, count), nn.SiLU()))
        inside = outside
    network.add_module("flat", nn.Flatten())
    network.add_module("head", nn.Linear(inside * (image_size // PLACED_STRIDE) ** 2, outputs))
    return network


def encoder_unet(
    image_size: Count,
    channels: Count = 3,
    outputs: Count = 1,
    widths: tuple[Count, ...] = (128, 256, 512, 512),
    res_blocks: Count = 2,
    attention: tuple[bool, ...] | None = None,
    head_width: Count = 64,
) -> nn.Module:
    """Return the time-conditioned encoder of a U-Net with attention pooling, for images of one size.

    Args:
        widths: channels of each level, finest first; multiples of 32.
        attention: whether a level has it; None = only the middle and the pooling have.
    """
    side, rest = divmod(image_size, 2 ** (len(widths) - 1))
    if rest:
        wanted = f"a multiple of {2 ** (len(widths) - 1)}, for {len(widths)} levels"
        raise InputError(expected("image_size of encoder-unet", wanted, image_size))
    if attention is not None and len(attention) != len(widths):
        raise InputError(expected("attention of encoder-unet", f"{len(widths)} levels", len(attention)))
    layout = Layout(
        in_channels=channels,
        out_channels=channels,
        widths=widths,
        res_blocks=res_blocks,
        attention=attention or (False,) * len(widths),
        updown=True,
        scale_shift=True,
        time_width=4 * widths[0],
    )
    heads = Heads(width=head_width)
    pool = AttentionPool(side**2, widths[-1], heads.at(widths[-1]), outputs)
    return GuidedEncoder(build_unet(guided_config(layout, heads, image_size)), pool)


def published_encoder(image_size: Count, head_width: Count = 64, new_order: bool = False) -> Conversion:
    """Return what makes the network of the weights of a guided-diffusion classifier.

    Args:
        new_order: of queries, keys and values in the blocks; the published classifiers have the older one.
    """
    return partial(encoder_from_weights, image_size=image_size, head_width=head_width, new_order=new_order)


def as_published(weights: Weights) -> Weights:
    """Keep the names: they are the network's own."""
    return weights


def from_torchvision_densenet(weights: Weights) -> Weights:
    """Rename the weights of torchvision's DenseNet, today's or that of 2017 (norm.1), to MONAI's names."""
    return {_densenet_name(name): weight for name, weight in weights.items()}


def from_dive(weights: Weights) -> Weights:
    """Rename the weights of DiVE's CelebA classifier: a trunk `feat_extract` and a head `classifier`."""
    if not any(name.startswith("feat_extract.") for name in weights):
        return from_torchvision_densenet(weights)
    # Whatever else the checkpoint holds (an optimiser) is no part of the network.
    parts = [name for name in weights if name.startswith(("feat_extract.", "classifier."))]
    return from_torchvision_densenet({name.replace("feat_extract.", ""): weights[name] for name in parts})


def _densenet_name(name: str) -> str:
    name = re.sub(r"(denselayer\d+)\.(norm|conv)\.?([12])\.", r"\1.layers.\2\3.", name)
    return re.sub(r"^classifier\.", "class_layers.out.", name)


def dimensions(**places: tuple[str, int]) -> Callable[[Weights], dict[str, Any]]:
    """Return what reads arguments from weights, each from one dimension of one weight."""

    def read(weights: Weights) -> dict[str, Any]:
        there = {name: place for name, place in places.items() if place[0] in weights}
        return {name: weights[weight].shape[dimension] for name, (weight, dimension) in there.items()}

    return read


def placed_arguments(weights: Weights) -> dict[str, Any]:
    """Read the arguments of a placed-cnn from its weights."""
    told = _SMALL(weights)
    if "block3.0.weight" in weights and "head.weight" in weights:
        places = weights["head.weight"].shape[1] // weights["block3.0.weight"].shape[0]
        told["image_size"] = PLACED_STRIDE * math.isqrt(places)
    return told


def encoder_arguments(weights: Weights) -> dict[str, Any]:
    """Read the arguments of an encoder from its weights; they do not tell the width of its heads."""
    blocks = {
        name.split(".resnets.")[0] for name in weights if re.match(r"down_blocks\.\d+\.resnets\.", name)
    }
    levels = [f"down_blocks.{level}" for level in range(len(blocks))]
    if not levels or "pool.positional_embedding" not in weights:
        return {}
    side = math.isqrt(weights["pool.positional_embedding"].shape[1] - 1)
    told = dimensions(channels=("conv_in.weight", 1), outputs=("pool.c_proj.weight", 0))(weights)
    return told | {
        "image_size": side << (len(levels) - 1),
        "widths": [weights[f"{level}.resnets.0.conv1.weight"].shape[0] for level in levels],
        "res_blocks": sum(
            bool(re.fullmatch(r"down_blocks\.0\.resnets\.\d+\.conv1\.weight", n)) for n in weights
        ),
        "attention": [f"{level}.attentions.0.to_q.weight" in weights for level in levels],
    }


@dataclass(frozen=True)
class Architecture:
    """A network known by name.

    Attributes:
        build: makes it, with weights at random.
        told: reads the arguments of `build` from weights that have the network's own names.
        rename: turns the names of published weights into the network's own.
        convert: for published weights that need more than new names: takes what they do not tell and gives
            what makes the network of them.
        foreign: the name of a weight by which such weights are known.
        settings: what is known about the classifier besides its weights.
    """

    build: Callable[..., nn.Module]
    told: Callable[[Weights], dict[str, Any]]
    rename: Callable[[Weights], Weights] = as_published
    convert: Callable[..., Conversion] | None = None
    foreign: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


_RESNET = dimensions(channels=("conv1.weight", 1), outputs=("fc.weight", 0))
_DENSENET = dimensions(channels=("features.conv0.weight", 1), outputs=("class_layers.out.weight", 0))
_SMALL = dimensions(channels=("block1.0.weight", 1), width=("block1.0.weight", 0), outputs=("head.weight", 0))
_RESIDUAL = dimensions(channels=("stem.0.weight", 1), width=("stem.0.weight", 0), outputs=("head.weight", 0))
_DIVE = {"kind": "multilabel", "channels": 3, "size": 128}

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "resnet18": Architecture(resnet18, _RESNET),
        "resnet50": Architecture(resnet50, _RESNET),
        "densenet121": Architecture(densenet121, _DENSENET, from_torchvision_densenet),
        "dive-densenet121": Architecture(densenet121, _DENSENET, from_dive, settings=_DIVE),
        "small-cnn": Architecture(small_cnn, _SMALL),
        "small-resnet": Architecture(small_resnet, _RESIDUAL),
        "placed-cnn": Architecture(placed_cnn, placed_arguments),
        "encoder-unet": Architecture(
            encoder_unet, encoder_arguments, convert=published_encoder, foreign=POOL, settings={"timed": True}
        ),
    }
)
