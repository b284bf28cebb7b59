"""Blurs whose width is a share of the image, and the grain that denoising takes away."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, pad


def blurred(image: Float[Tensor, "b c h w"], width: float) -> Float[Tensor, "b c h w"]:
    """Blur with a Gaussian whose deviation is this share of the shorter side.

    >>> blurred(torch.ones(1, 1, 4, 4), 0.2).round(decimals=4).unique().tolist()
    [1.0]
    """
    sigma = width * min(image.shape[2:])
    reach = max(1, round(3 * sigma))
    offsets = torch.arange(-reach, reach + 1, dtype=image.dtype, device=image.device)
    weights = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = (weights / weights.sum()).expand(image.shape[1], 1, -1)
    tall = conv2d(pad(image, (0, 0, reach, reach), mode="replicate"), kernel[..., None], groups=len(kernel))
    return conv2d(pad(tall, (reach, reach, 0, 0), mode="replicate"), kernel[:, :, None], groups=len(kernel))


def grain(x: Float[Tensor, "b c h w"], denoised: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Return what denoising took from an image, less where that is more than grain: an edge, a thin line."""
    rest = x - denoised
    energy = avg_pool2d(rest.square().mean(1, keepdim=True), 3, 1, 1, count_include_pad=False)
    usual = energy.flatten(1).median(1).values.view(-1, 1, 1, 1)
    return rest * torch.where(energy > usual, usual / energy, 1.0)
