"""Shapes of denoisers: the small one of this library, and those of the published programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from fastdime.diffusion.denoiser import Variance
from fastdime.diffusion.patched import PatchedUNet
from fastdime.diffusion.unet import Heads, Layout, UNet, build_unet, unet_config
from fastdime.errors import InputError, expected, unknown


class Shape(Protocol):
    """What makes a denoiser's network for images of some size."""

    @property
    def variance(self) -> Variance:
        """What the network goes with."""

    @property
    def multiple(self) -> int:
        """What the size of an image must be a multiple of."""

    def build(self, channels: int, size: int) -> nn.Module:
        """Make the network, with weights at random."""

    def describe(self) -> dict[str, Any]:
        """What is written down."""


@dataclass(frozen=True)
class UNetShape:
    """A U-Net small enough for a machine without a GPU."""

    widths: tuple[int, ...] = (48, 72, 96)
    layers: int = 1
    patch: int = 4
    groups: int = 8

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        _check(self.widths, self.groups, layers=self.layers, patch=self.patch)
        if self.widths[-1] % 4:
            raise InputError(expected("last width of the denoiser", "a multiple of 4", self.widths[-1]))

    @property
    def variance(self) -> Variance:
        """The posterior's."""
        return "fixed_small"

    @property
    def multiple(self) -> int:
        """Patches, halved at each level but the last."""
        return self.patch * int(2 ** (len(self.widths) - 1))

    def describe(self) -> dict[str, Any]:
        """What is written down."""
        return {"widths": list(self.widths), "layers": self.layers, "patch": self.patch}

    def build(self, channels: int, size: int) -> PatchedUNet:
        """Make the network, with weights at random."""
        from diffusers import UNet2DModel

        folded = channels * self.patch**2
        if self.widths[0] < folded:  # the noise of a patch would not fit through
            wanted = f"{folded} or more, for {channels} channels and patches of {self.patch} x {self.patch}"
            raise InputError(expected("first width of the denoiser", wanted, self.widths[0]))
        unet = UNet2DModel(
            sample_size=size // self.patch,
            in_channels=folded,
            out_channels=folded,
            block_out_channels=self.widths,
            layers_per_block=self.layers,
            down_block_types=("DownBlock2D",) * len(self.widths),
            up_block_types=("UpBlock2D",) * len(self.widths),
            norm_num_groups=self.groups,
            attn_norm_num_groups=self.groups,
            attention_head_dim=self.widths[-1] // 4,
            resnet_time_scale_shift="scale_shift",
        )
        return PatchedUNet(unet.to(memory_format=torch.channels_last), self.patch)


@dataclass(frozen=True)
class GuidedShape:
    """The guided-diffusion U-Net of DiME's CelebA model: attention, and a variance that is learned.

    Attributes:
        attention: whether a level has it.
        heads: at every place with attention.
    """

    widths: tuple[int, ...] = (128, 128, 256, 384, 512)
    attention: tuple[bool, ...] = (False, False, True, True, True)
    layers: int = 2
    heads: int = 4
    groups: int = 32

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        _check(self.widths, self.groups, layers=self.layers)
        if len(self.attention) != len(self.widths):
            wanted = f"{len(self.attention)} levels, for which it is known which have attention"
            raise InputError(expected("widths of the denoiser", wanted, len(self.widths)))

    @property
    def variance(self) -> Variance:
        """Learned, between the two that are usual."""
        return "learned_range"

    @property
    def multiple(self) -> int:
        """Halved at each level but the last."""
        return int(2 ** (len(self.widths) - 1))

    def describe(self) -> dict[str, Any]:
        """What is written down."""
        return {"network": "guided", **_listed(vars(self))}

    def build(self, channels: int, size: int) -> UNet:
        """Make the network; every residual branch begins with nothing, as published."""
        layout = Layout(
            in_channels=channels,
            out_channels=2 * channels,
            widths=self.widths,
            res_blocks=self.layers,
            attention=self.attention,
            updown=True,
            scale_shift=True,
            time_width=4 * self.widths[0],
        )
        heads = Heads(number=self.heads)
        unet = build_unet(unet_config(layout, heads, groups=self.groups, eps=1e-5, image_size=size))
        for name, weight in unet.named_parameters():
            if any(part in name for part in (".conv2.", ".to_out.0.")) or name.startswith("conv_out."):
                nn.init.zeros_(weight)
        return unet


@dataclass(frozen=True)
class MedicalShape:
    """The U-Net of the published medical program: no attention but in the middle, and dropout.

    Whole channels were dropped there; here single values are.
    """

    widths: tuple[int, ...] = (64, 128, 256, 256)
    layers: int = 2
    heads: int = 4
    groups: int = 8
    dropout: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        _check(self.widths, self.groups, layers=self.layers)

    @property
    def variance(self) -> Variance:
        """Beta."""
        return "fixed_large"

    @property
    def multiple(self) -> int:
        """Halved at each level but the last."""
        return int(2 ** (len(self.widths) - 1))

    def describe(self) -> dict[str, Any]:
        """What is written down."""
        return {"network": "medical", **_listed(vars(self))}

    def build(self, channels: int, size: int) -> UNet:
        """Make the network, with weights at random."""
        layout = Layout(
            in_channels=channels,
            out_channels=channels,
            widths=self.widths,
            res_blocks=self.layers,
            attention=(False,) * len(self.widths),
            updown=False,
            scale_shift=False,
            time_width=4 * self.widths[0],
        )
        heads = Heads(number=self.heads)
        config = unet_config(layout, heads, groups=self.groups, eps=1e-5, image_size=size)
        # Sines first, and frequencies that end at 1e-4: the time table of the published program.
        return build_unet(config | {"dropout": self.dropout, "flip_sin_to_cos": False, "freq_shift": 1})


def reshaped(shape: Shape, changes: Mapping[str, Any]) -> Shape:
    """Return a shape with some of its numbers changed."""
    for name in changes:
        if name not in vars(shape):
            raise InputError(unknown("shape of the denoiser", name, vars(shape)))
    return type(shape)(**{**vars(shape), **changes})


def _check(widths: tuple[int, ...], groups: int, **counts: int) -> None:
    wrong = [width for width in widths if width < 1 or width % groups]
    if wrong or not widths:
        wanted = f"channels in multiples of {groups}"
        raise InputError(expected("widths of the denoiser", wanted, wrong[0] if wrong else "none"))
    for name, count in counts.items():
        if count < 1:
            raise InputError(expected(f"{name} of the denoiser", "1 or more", count))


def _listed(values: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
