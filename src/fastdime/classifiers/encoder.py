"""The guided-diffusion encoder: a classifier that is told the noise level and pools by attention."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from fastdime.diffusion.guided_unet import (
    EPS,
    GROUPS,
    guided_config,
    guided_layout,
    guided_names,
    widened_time,
)
from fastdime.diffusion.unet import Heads, Layout, UNet, build_unet, count_blocks, fill, shape_of
from fastdime.errors import CheckpointError, expected

POOL = "out.2.positional_embedding"


class AttentionPool(nn.Module):
    """Attention of the mean feature to all places; the classifier's last layers."""

    def __init__(self, places: int, channels: int, heads: int, outputs: int) -> None:
        """Make the layers; `places` is the number of pixels of the feature map."""
        super().__init__()
        self.heads = heads
        self.positional_embedding = nn.Parameter(torch.zeros(channels, places + 1))
        self.qkv_proj = nn.Conv1d(channels, 3 * channels, 1)
        self.c_proj = nn.Conv1d(channels, outputs, 1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Return one number an output and image."""
        x = x.flatten(2)
        x = torch.cat([x.mean(dim=2, keepdim=True), x], dim=2) + self.positional_embedding
        query, key, value = self.qkv_proj(x).unflatten(1, (3, self.heads, -1)).transpose(3, 4).unbind(1)
        # Only the mean's own result is used, so only its query is needed.
        pooled = functional.scaled_dot_product_attention(query[:, :, :1], key, value)
        out: Tensor = self.c_proj(pooled.transpose(2, 3).flatten(1, 2))
        return out[:, :, 0]


class GuidedEncoder(nn.Module):
    """The way down and the middle of a U-Net, with attention pooling on top."""

    def __init__(self, unet: UNet, pool: AttentionPool) -> None:
        """Take the parts of a diffusers `UNet2DModel` that are needed."""
        super().__init__()
        self.conv_in: nn.Module = unet.conv_in
        self.time_proj: nn.Module = unet.time_proj
        self.time_embedding: nn.Module = unet.time_embedding
        self.down_blocks: nn.ModuleList = unet.down_blocks
        self.mid_block: nn.Module = unet.mid_block
        self.norm_out = nn.GroupNorm(GROUPS, len(pool.positional_embedding), EPS)
        self.pool = pool

    def forward(self, x: Float[Tensor, "b c h w"], time: Int[Tensor, " b"]) -> Float[Tensor, "b k"]:
        """Score images in [-1, 1] at a noise level."""
        embedding = self.time_embedding(self.time_proj(time).to(x.dtype))
        x = self.conv_in(x)
        for block in self.down_blocks:
            x, _ = block(x, embedding)
        x = self.mid_block(x, embedding)
        out: Tensor = self.pool(functional.silu(self.norm_out(x)))
        return out


def encoder_from_weights(
    weights: Mapping[str, Tensor],
    *,
    image_size: int,
    head_width: int,
    new_order: bool = False,
    path: str | Path = "weights",
) -> GuidedEncoder:
    """Build the encoder that computes what a guided-diffusion classifier computes.

    Args:
        image_size: height and width of its images; it works with this size only.
        head_width: channels of one attention head (the published classifiers: 64).
        new_order: order of the joint projections in the blocks; the pooling always has the new one.
        path: where the weights come from, for error sentences.
    """
    layout = _layout(weights, image_size, path)
    heads = Heads(width=head_width)
    channels, positions = shape_of(weights, POOL, path)
    outputs = shape_of(weights, "out.2.c_proj.weight", path)[0]
    unet = build_unet(guided_config(layout, heads, image_size), device="meta")
    with torch.device("meta"):
        encoder = GuidedEncoder(unet, AttentionPool(positions - 1, channels, heads.at(channels), outputs))
    top = {"norm_out": "out.0", "pool": "out.2"}
    top |= {f"pool.{name}": f"out.2.{name}" for name in ("qkv_proj", "c_proj")}
    names = guided_names(layout) | top
    wide = widened_time(weights, layout, path)
    fill(encoder, wide, names.__getitem__, path, lambda c: 1 if new_order else heads.at(c))
    return encoder.eval()


def _layout(weights: Mapping[str, Tensor], image_size: int, path: str | Path) -> Layout:
    """Read the layout; only the size of the pooled map tells how many levels there are."""
    if POOL not in weights:
        got = "another head" if "out.0.weight" in weights else "other weights"
        raise CheckpointError(expected(Path(path).name, f"an encoder with attention pooling ({POOL})", got))
    side = math.isqrt(shape_of(weights, POOL, path)[1] - 1)
    levels = round(math.log2(image_size / side)) + 1 if 0 < side <= image_size else 0
    blocks = count_blocks(weights, "input_blocks")
    if levels < 1 or side << (levels - 1) != image_size or blocks % levels:
        raise CheckpointError(
            expected(
                Path(path).name,
                f"weights for images of {image_size} pixels",
                f"{blocks} blocks that end in a map of {side} x {side}",
                "give the image size it was trained on",
            )
        )
    return guided_layout(weights, path, blocks // levels - 1)
