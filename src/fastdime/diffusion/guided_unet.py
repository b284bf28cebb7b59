"""OpenAI guided-diffusion U-Nets (DiME's CelebA model is one) as diffusers networks."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from fastdime.diffusion.unet import (
    Heads,
    Layout,
    UNet,
    build_unet,
    count_blocks,
    fill,
    named,
    shape_of,
    unet_config,
)
from fastdime.errors import CheckpointError, expected

GROUPS, EPS = 32, 1e-5
EDGES = {
    "conv_in": "input_blocks.0.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}
RESIDUAL = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
ATTENTION = {"group_norm": "norm", "to_q": "qkv", "to_k": "qkv", "to_v": "qkv", "to_out.0": "proj_out"}


def unet_from_guided(
    weights: Mapping[str, Tensor],
    heads: Heads,
    *,
    new_order: bool = False,
    image_size: int | None = None,
    path: str | Path = "weights",
) -> UNet:
    """Build the diffusers `UNet2DModel` that computes what a guided-diffusion U-Net computes.

    Args:
        heads: the weights do not tell them.
        new_order: the joint projection holds all queries, then all keys, then all values; the older (legacy)
            order holds one such triple for each head.
        path: where the weights come from, for error sentences.
    """
    layout = guided_layout(weights, path)
    unet = build_unet(guided_config(layout, heads, image_size), device="meta")
    names = guided_names(layout)
    fill(
        unet,
        widened_time(weights, layout, path),
        names.__getitem__,
        path,
        lambda c: 1 if new_order else heads.at(c),
    )
    return unet


def guided_config(layout: Layout, heads: Heads, image_size: int | None) -> dict[str, object]:
    """Return the diffusers configuration for this layout."""
    return unet_config(layout, heads, groups=GROUPS, eps=EPS, image_size=image_size)


def guided_layout(weights: Mapping[str, Tensor], path: str | Path, res_blocks: int | None = None) -> Layout:
    """Read from the weights what they tell about the network.

    Args:
        res_blocks: residual blocks a level, if there is no way up from which to read them.
    """
    if "label_emb.weight" in weights:
        raise CheckpointError(
            expected(Path(path).name, "a model without class labels", "a class-conditional one (label_emb)")
        )
    step = (_res_blocks(weights) if res_blocks is None else res_blocks) + 1
    blocks = count_blocks(weights, "input_blocks")
    if step < 2 or blocks % step:
        raise CheckpointError(
            expected(Path(path).name, f"levels of {step} input blocks", f"{blocks} of them")
        )
    first = [f"input_blocks.{number}" for number in range(1, blocks, step)]
    widths = tuple(shape_of(weights, f"{block}.0.in_layers.2.weight", path)[0] for block in first)
    entry = shape_of(weights, "input_blocks.0.0.weight", path)
    return Layout(
        in_channels=entry[1],
        out_channels=shape_of(weights, "out.2.weight", path)[0] if res_blocks is None else entry[1],
        widths=widths,
        res_blocks=step - 1,
        attention=tuple(f"{block}.1.qkv.weight" in weights for block in first),
        updown=blocks > step and f"input_blocks.{step}.0.op.weight" not in weights,
        scale_shift=shape_of(weights, f"{first[0]}.0.emb_layers.1.weight", path)[0] == 2 * widths[0],
        time_width=shape_of(weights, "time_embed.2.weight", path)[0],
    )


def _res_blocks(weights: Mapping[str, Tensor]) -> int:
    """Find the first block on the way up that ends with an up-sampling: it is the last of its level."""
    blocks = count_blocks(weights, "output_blocks")
    for block in range(blocks):
        places = (f"output_blocks.{block}.{place}" for place in (1, 2))
        if any(f"{p}.conv.weight" in weights or f"{p}.in_layers.0.weight" in weights for p in places):
            return block
    return blocks - 1


def guided_names(layout: Layout) -> dict[str, str]:
    """Return the names of all layers: those of diffusers to those of guided-diffusion."""
    names = dict(EDGES)
    for level, attention in enumerate(layout.attention):
        names |= _level_down(layout, level, attention)
    names |= named(RESIDUAL, "mid_block.resnets.0", "middle_block.0")
    names |= named(ATTENTION, "mid_block.attentions.0", "middle_block.1")
    names |= named(RESIDUAL, "mid_block.resnets.1", "middle_block.2")
    for level, attention in enumerate(reversed(layout.attention)):
        names |= _level_up(layout, level, attention)
    return names


def _level_down(layout: Layout, level: int, attention: bool) -> dict[str, str]:
    ours, step = f"down_blocks.{level}", layout.res_blocks + 1
    resample = RESIDUAL if layout.updown else {"conv": "op"}
    names = named(resample, f"{ours}.downsamplers.0", f"input_blocks.{(level + 1) * step}.0")
    for block in range(layout.res_blocks):
        theirs = f"input_blocks.{level * step + block + 1}"
        names |= named(RESIDUAL, f"{ours}.resnets.{block}", f"{theirs}.0")
        if attention:
            names |= named(ATTENTION, f"{ours}.attentions.{block}", f"{theirs}.1")
    return names


def _level_up(layout: Layout, level: int, attention: bool) -> dict[str, str]:
    ours, step = f"up_blocks.{level}", layout.res_blocks + 1
    resample = RESIDUAL if layout.updown else {"conv": "conv"}
    last = f"output_blocks.{(level + 1) * step - 1}"
    names = named(resample, f"{ours}.upsamplers.0", f"{last}.{2 if attention else 1}")
    for block in range(step):
        theirs = f"output_blocks.{level * step + block}"
        names |= named(RESIDUAL, f"{ours}.resnets.{block}", f"{theirs}.0")
        if attention:
            names |= named(ATTENTION, f"{ours}.attentions.{block}", f"{theirs}.1")
    return names


def widened_time(weights: Mapping[str, Tensor], layout: Layout, path: str | Path) -> dict[str, Tensor]:
    """Return the weights with a first time layer as wide as the first level, which diffusers asks for.

    The sinusoids of an m times wider time embedding hold those of the narrow one at every m-th place, so the
    other places get weight zero and the result stays the same.
    """
    width = shape_of(weights, "time_embed.0.weight", path)[1]
    factor, rest = divmod(layout.widths[0], width)
    if rest or width % 2:
        wanted = f"an even time width that divides the {layout.widths[0]} channels of the first level"
        remedy = "a first multiplier that is not whole has no diffusers form"
        raise CheckpointError(expected(Path(path).name, wanted, width, remedy))
    narrow = weights["time_embed.0.weight"]
    wide = narrow.new_zeros(len(narrow), 2, layout.widths[0] // 2)
    wide[:, :, ::factor] = narrow.reshape(len(narrow), 2, -1)
    return {**weights, "time_embed.0.weight": wide.flatten(1)}
