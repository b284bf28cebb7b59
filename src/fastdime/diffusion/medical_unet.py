"""The U-Net of the published medical program as a diffusers network."""

import itertools
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

GROUPS, EPS, HEADS = 8, 1e-5, Heads(number=4)
TIME_TABLE = "time_embeddings.time_blocks.0.weight"
EDGES = {
    "conv_in": "first",
    "time_proj": "time_embeddings.time_blocks.0",
    "time_embedding.linear_1": "time_embeddings.time_blocks.1",
    "time_embedding.linear_2": "time_embeddings.time_blocks.3",
    "conv_norm_out": "final.0",
    "conv_out": "final.2",
}
RESIDUAL = {
    "norm1": "normlize_1",
    "conv1": "conv_1",
    "time_emb_proj": "dense_1",
    "norm2": "normlize_2",
    "conv2": "conv_2",
    "conv_shortcut": "match_input",
}
ATTENTION = {
    "group_norm": "attention.group_norm",
    "to_q": "attention.mhsa.in_proj",
    "to_k": "attention.mhsa.in_proj",
    "to_v": "attention.mhsa.in_proj",
    "to_out.0": "attention.mhsa.out_proj",
}


def unet_from_medical(
    weights: Mapping[str, Tensor], *, image_size: int | None = None, path: str | Path = "weights"
) -> UNet:
    """Build the diffusers `UNet2DModel` that computes what the medical U-Net computes.

    Args:
        path: where the weights come from, for error sentences.
    """
    layout = medical_layout(weights, path)
    config = unet_config(layout, HEADS, groups=GROUPS, eps=EPS, image_size=image_size)
    # The time table is kept as it stands in the file: its frequencies are not those of diffusers.
    config |= {"time_embedding_type": "learned", "num_train_timesteps": len(weights[TIME_TABLE])}
    unet = build_unet(config, device="meta")
    dotted = {name.replace(".in_proj_", ".in_proj."): tensor for name, tensor in weights.items()}
    fill(unet, dotted, medical_names(layout).__getitem__, path)
    return unet


def medical_layout(weights: Mapping[str, Tensor], path: str | Path) -> Layout:
    """Read from the weights what they tell about the network."""
    blocks = count_blocks(weights, "encoder_blocks")
    downs = [n for n in range(blocks) if f"encoder_blocks.{n}.downsample.weight" in weights]
    step = downs[0] + 1 if downs else blocks + 1
    first = [f"encoder_blocks.{number}" for number in range(0, blocks, step)]
    widths = tuple(shape_of(weights, f"{block}.conv_1.weight", path)[0] for block in first)
    entry = shape_of(weights, "first.weight", path)
    if entry[0] != widths[0]:
        raise CheckpointError(
            expected(Path(path).name, f"a first level of {entry[0]} channels (multiplier 1)", widths[0])
        )
    return Layout(
        in_channels=entry[1],
        out_channels=shape_of(weights, "final.2.weight", path)[0],
        widths=widths,
        res_blocks=step - 1,
        attention=tuple(f"{block}.attention.mhsa.in_proj_weight" in weights for block in first),
        updown=False,
        scale_shift=False,
        time_width=shape_of(weights, "time_embeddings.time_blocks.3.weight", path)[0],
    )


def medical_names(layout: Layout) -> dict[str, str]:
    """Return the names of all layers: those of diffusers to those of the medical program."""
    names = EDGES | named(RESIDUAL, "mid_block.resnets.0", "bottleneck_blocks.0")
    names |= named(ATTENTION, "mid_block.attentions.0", "bottleneck_blocks.0")
    names |= named(RESIDUAL, "mid_block.resnets.1", "bottleneck_blocks.1")
    down, up = itertools.count(), itertools.count()
    for level in range(len(layout.widths)):
        names |= _blocks(f"down_blocks.{level}", "encoder_blocks", down, layout.res_blocks)
        names[f"down_blocks.{level}.downsamplers.0.conv"] = f"encoder_blocks.{next(down)}.downsample"
        names |= _blocks(f"up_blocks.{level}", "decoder_blocks", up, layout.res_blocks + 1)
        names[f"up_blocks.{level}.upsamplers.0.conv"] = f"decoder_blocks.{next(up)}.upsample.1"
    return names


def _blocks(ours: str, theirs: str, number: "itertools.count[int]", count: int) -> dict[str, str]:
    names: dict[str, str] = {}
    for block in range(count):
        old = f"{theirs}.{next(number)}"
        names |= named(RESIDUAL, f"{ours}.resnets.{block}", old)
        names |= named(ATTENTION, f"{ours}.attentions.{block}", old)
    return names
