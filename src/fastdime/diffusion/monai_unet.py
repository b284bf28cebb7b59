"""MONAI's `DiffusionModelUNet` (two dimensions, no conditioning) as a diffusers network."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fastdime.diffusion.unet import Heads, Layout, UNet, build_unet, count_blocks, fill, shape_of, unet_config
from fastdime.errors import CheckpointError, expected

EPS = 1e-6  # MONAI's default

# The layers that the MONAI Generative package, its predecessor, named otherwise.
OLDER = (
    (r"(attentions\.\d+|attention)\.(to_[qkv])\.", r"\1.attn.\2."),
    (r"(attentions\.\d+|attention)\.proj_attn\.", r"\1.attn.out_proj."),
    (r"upsampler\.conv\.conv\.", "upsampler.postconv.conv."),
)
NAMES = (
    (r"^conv_in$", "conv_in.conv"),
    (r"^time_embedding\.linear_1$", "time_embed.0"),
    (r"^time_embedding\.linear_2$", "time_embed.2"),
    (r"^conv_norm_out$", "out.0"),
    (r"^conv_out$", "out.2.conv"),
    (r"^mid_block\.attentions\.0", "middle_block.attention"),
    (r"^mid_block\.resnets\.0", "middle_block.resnet_1"),
    (r"^mid_block\.resnets\.1", "middle_block.resnet_2"),
    (r"\.downsamplers\.0\.conv$", ".downsampler.op.conv"),
    (r"\.upsamplers\.0\.conv$", ".upsampler.postconv.conv"),
    (r"\.(down|up)samplers\.0\.", r".\1sampler."),
    (r"\.(conv1|conv2)$", r".\1.conv"),
    (r"\.conv_shortcut$", ".skip_connection.conv"),
    (r"\.group_norm$", ".norm"),
    (r"\.to_out\.0$", ".attn.out_proj"),
)


def unet_from_monai(
    weights: Mapping[str, Tensor],
    head_widths: int | Sequence[int],
    groups: int,
    *,
    eps: float = EPS,
    image_size: int | None = None,
    path: str | Path = "weights",
) -> UNet:
    """Build the diffusers `UNet2DModel` that computes what a MONAI network computes.

    Args:
        head_widths: MONAI's `num_head_channels`: one for all levels, or one for each.
        groups: MONAI's `norm_num_groups`.
        eps: MONAI's `norm_eps`.
        path: where the weights come from, for error sentences.
    """
    weights = _today(weights)
    layout = monai_layout(weights, path)
    heads = _heads(layout, head_widths, path)
    unet = build_unet(
        unet_config(layout, heads, groups=groups, eps=eps, image_size=image_size), device="meta"
    )
    joint = any(name.endswith(".attn.qkv.weight") for name in weights)
    fill(unet, weights, lambda name: monai_name(name, joint), path)
    return unet


def monai_layout(weights: Mapping[str, Tensor], path: str | Path) -> Layout:
    """Read from the weights what they tell about the network."""
    entry = shape_of(weights, "conv_in.conv.weight", path)
    _check_expressible(weights, entry, path)
    levels = [f"down_blocks.{number}" for number in range(count_blocks(weights, "down_blocks"))]
    blocks = {count_blocks(weights, f"{level}.resnets") for level in levels}
    if len(blocks) != 1:
        raise _not_expressible(path, "the same number of residual blocks in all levels", sorted(blocks))
    return Layout(
        in_channels=entry[1],
        out_channels=shape_of(weights, "out.2.conv.weight", path)[0],
        widths=tuple(shape_of(weights, f"{level}.resnets.0.conv1.conv.weight", path)[0] for level in levels),
        res_blocks=blocks.pop(),
        attention=tuple(f"{level}.attentions.0.norm.weight" in weights for level in levels),
        updown="down_blocks.0.downsampler.norm1.weight" in weights,
        scale_shift=False,
        time_width=shape_of(weights, "time_embed.2.weight", path)[0],
    )


def _check_expressible(weights: Mapping[str, Tensor], entry: tuple[int, ...], path: str | Path) -> None:
    if len(entry) != 4:
        raise _not_expressible(path, "a network for two-dimensional images", f"{len(entry) - 2} dimensions")
    if "class_embedding.weight" in weights or any("transformer_blocks" in name for name in weights):
        raise _not_expressible(path, "a network without conditioning", "one with classes or cross-attention")


def _not_expressible(path: str | Path, wanted: str, got: object) -> CheckpointError:
    remedy = "build it in Python and give package.module:function"
    return CheckpointError(expected(Path(path).name, wanted, got, remedy))


def _heads(layout: Layout, told: int | Sequence[int], path: str | Path) -> Heads:
    """Turn head widths of levels into one width, or one number of heads, for all places."""
    per_level = [told] * len(layout.widths) if isinstance(told, int) else list(told)
    if len(per_level) != len(layout.widths):
        raise CheckpointError(
            expected(
                f"num_head_channels for {Path(path).name}", f"{len(layout.widths)} numbers", len(per_level)
            )
        )
    places = [*(n for n, has in enumerate(layout.attention) if has), len(layout.widths) - 1]
    if len({per_level[place] for place in places}) == 1:
        return Heads(width=per_level[places[0]])
    numbers = {Heads(width=per_level[place]).at(layout.widths[place]) for place in places}
    if len(numbers) != 1:
        raise _not_expressible(path, "one head width, or one number of heads, in all levels", per_level)
    return Heads(number=numbers.pop())


def monai_name(name: str, joint: bool) -> str:
    """Return MONAI's name of a diffusers layer.

    Args:
        joint: queries, keys and values come from one projection.
    """
    for ours, theirs in NAMES:
        name = re.sub(ours, theirs, name)
    return re.sub(r"\.(to_[qkv])$", ".attn.qkv" if joint else r".attn.\1", name)


def _today(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under today's names; the last projection of attention may be left out: add it."""
    new: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        for older, newer in OLDER:
            name = re.sub(older, newer, name)
        new[name] = tensor
    places = [
        name.removesuffix(".norm.weight")
        for name in new
        if re.search(r"attentions?(\.\d+)?\.norm\.weight$", name)
    ]
    for place in places:
        width = len(new[f"{place}.norm.weight"])
        new.setdefault(f"{place}.attn.out_proj.weight", torch.eye(width))
        new.setdefault(f"{place}.attn.out_proj.bias", torch.zeros(width))
    return new
