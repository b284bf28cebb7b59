"""A diffusers U-Net from a description, and other people's weights put into it under its own names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.errors import CheckpointError, expected
from fastdime.weights import check_match, load_into

Config = dict[str, Any]
UNet = Any  # a diffusers UNet2DModel: diffusers has no types, and is imported only when a network is built


@dataclass(frozen=True)
class Layout:
    """What the weights of a U-Net tell about it.

    Attributes:
        widths: channels of each level, finest first.
        res_blocks: residual blocks of a level on the way down.
        attention: whether a level has attention.
        updown: up- and down-sampling by residual blocks, not by convolutions.
        scale_shift: time scales and shifts the second norm; otherwise it is added before it.
        time_width: width of the time embedding after its two layers.
    """

    in_channels: int
    out_channels: int
    widths: tuple[int, ...]
    res_blocks: int
    attention: tuple[bool, ...]
    updown: bool
    scale_shift: bool
    time_width: int

    @property
    def attention_widths(self) -> list[int]:
        """Channels at each place with attention; the middle always has it."""
        return [width for width, has in zip(self.widths, self.attention, strict=True) if has] + [
            self.widths[-1]
        ]

    def difference(self, other: "Layout") -> tuple[str, str] | None:
        """Describe the first thing in which another layout differs: (this, other)."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            if ours != theirs:
                return f"{field.name} {ours}", f"{field.name} {theirs}"
        return None


@dataclass(frozen=True)
class Heads:
    """Attention heads: a number of them at every place, or one width at every place."""

    number: int | None = None
    width: int | None = None

    def at(self, channels: int) -> int:
        """Return the number of heads at a place with so many channels."""
        heads = self.number or channels // (self.width or channels)
        if heads == 0 or channels % heads or (self.width and heads * self.width != channels):
            told = f"{self.number} heads" if self.number else f"heads of width {self.width}"
            raise CheckpointError(
                expected("attention", f"heads that divide {channels} channels", told, "correct their number")
            )
        return heads

    def setting(self, layout: Layout) -> int | str:
        """Return what goes into the field `attention_head_dim` of a diffusers configuration.

        diffusers knows one head width for all places only. A number of heads at places of different widths is
        written as "4 heads": a text, so that plain diffusers stops and does not compute other numbers.
        """
        widths = {channels // self.at(channels) for channels in layout.attention_widths}
        return widths.pop() if len(widths) == 1 else f"{self.number} heads"


def unet_config(layout: Layout, heads: Heads, *, groups: int, eps: float, image_size: int | None) -> Config:
    """Return the configuration of the diffusers `UNet2DModel` with this layout."""
    plain = (
        ("ResnetDownsampleBlock2D", "ResnetUpsampleBlock2D")
        if layout.updown
        else ("DownBlock2D", "UpBlock2D")
    )
    resample = "resnet" if layout.updown else "conv"
    return {
        "sample_size": image_size,
        "in_channels": layout.in_channels,
        "out_channels": layout.out_channels,
        "block_out_channels": list(layout.widths),
        "layers_per_block": layout.res_blocks,
        "down_block_types": ["AttnDownBlock2D" if has else plain[0] for has in layout.attention],
        "up_block_types": ["AttnUpBlock2D" if has else plain[1] for has in reversed(layout.attention)],
        "downsample_type": resample,
        "upsample_type": resample,
        "time_embedding_dim": layout.time_width,
        "resnet_time_scale_shift": "scale_shift" if layout.scale_shift else "default",
        "norm_num_groups": groups,
        "attn_norm_num_groups": groups,
        "norm_eps": eps,
        "attention_head_dim": heads.setting(layout),
    }


def build_unet(config: Mapping[str, Any], *, device: str = "cpu") -> UNet:
    """Build a `UNet2DModel`, also one with a number of heads at places of different widths.

    Args:
        device: "meta" builds it without memory, to be filled with weights.
    """
    from diffusers import UNet2DModel

    told = config.get("attention_head_dim", 8)
    by_number = isinstance(told, str)
    with torch.device(device):
        unet = UNet2DModel.from_config({**config, "attention_head_dim": None if by_number else told})
    if by_number:
        _set_heads(unet, told)
        unet.register_to_config(attention_head_dim=told)
    return unet


def _set_heads(unet: nn.Module, told: str) -> None:
    from diffusers.models.attention_processor import Attention

    found = re.fullmatch(r"([1-9]\d*) heads", told)
    if found is None:
        raise CheckpointError(
            expected("attention_head_dim", "a number, or a text like '4 heads'", repr(told))
        )
    for module in unet.modules():
        if isinstance(module, Attention):
            module.heads = module.sliceable_head_dim = Heads(number=int(found[1])).at(module.inner_dim)
            module.scale = (module.inner_dim // module.heads) ** -0.5


def fill(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    old_name: Callable[[str], str],
    path: str | Path,
    chunks: Callable[[int], int] = lambda channels: 1,
) -> None:
    """Put weights with foreign names into a module; every one must be there, fit and be used.

    Args:
        old_name: turns the name of one of our layers into the name of theirs.
        path: where the weights come from, for the error sentence.
        chunks: how many [q, k, v] groups follow each other in a joint projection of so many channels.
    """
    own = module.state_dict()
    old = {name: ".".join([old_name(name.rpartition(".")[0]), name.rpartition(".")[2]]) for name in own}
    used = set(old.values())
    missing = sorted(used - weights.keys())
    check_match(path, missing, [name for name in weights if name not in used], [])
    new = {name: _fitted(name, weights[old[name]], own[name].shape, chunks) for name in own}
    wrong = [
        f"{old[name]}: {tuple(new[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if new[name].shape != own[name].shape
    ]
    check_match(path, [], [], wrong)
    load_into(module, new, path)


def _fitted(name: str, tensor: Tensor, shape: torch.Size, chunks: Callable[[int], int]) -> Tensor:
    part = re.search(r"\.to_([qkv])\.", name)
    if part is not None and len(tensor) == 3 * shape[0]:
        groups = tensor.reshape(chunks(shape[0]), 3, -1, *tensor.shape[1:])
        tensor = groups[:, "qkv".index(part[1])].flatten(0, 1).clone()
    # A projection may be a convolution of size 1.
    return tensor.reshape(shape) if tensor.shape == (*shape, *[1] * (tensor.ndim - len(shape))) else tensor


def named(table: Mapping[str, str], block: str, old: str) -> dict[str, str]:
    """Return the names of all layers of one block: ours to theirs."""
    return {f"{block}.{ours}": f"{old}.{theirs}" for ours, theirs in table.items()}


def shape_of(weights: Mapping[str, Tensor], name: str, path: str | Path) -> tuple[int, ...]:
    """Return the shape of a weight that must be there."""
    if name not in weights:
        check_match(path, [name], [], [])
    return tuple(weights[name].shape)


def count_blocks(weights: Mapping[str, Tensor], prefix: str) -> int:
    """Return how many numbered blocks there are under a prefix."""
    found = (re.match(rf"{re.escape(prefix)}\.(\d+)\.", name) for name in weights)
    return max((int(match[1]) + 1 for match in found if match), default=0)
