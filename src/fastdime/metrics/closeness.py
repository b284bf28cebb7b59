"""How little a counterfactual changes its image: one number an image.

Images come in [-1, 1] and distances are on the [0, 1] scale. They are computed in float64: SSIM subtracts
nearly equal numbers, which leaves float32 an error of 1e-4 on bright, flat images.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from fastdime.errors import InputError, expected
from fastdime.types import Images

Scores = Float[Tensor, " b"]
WINDOW, SIGMA = 11, 1.5  # of SSIM, Wang et al. 2004
HEIGHTS = [math.exp(-0.5 * ((place - WINDOW // 2) / SIGMA) ** 2) for place in range(WINDOW)]
BELL = [height / sum(HEIGHTS) for height in HEIGHTS]
C1, C2 = 0.01**2, 0.03**2  # its constants for a data range of 1


def check_pair(x: Tensor, x_cf: Tensor) -> None:
    """Refuse what is not a batch of images in [-1, 1] and another of the same shape.

    >>> check_pair(torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8))
    """
    for what, images in (("x", x), ("x_cf", x_cf)):
        _check_images(what, images)
    if x.shape != x_cf.shape:
        raise InputError(expected("x_cf", f"the shape of x, {tuple(x.shape)}", tuple(x_cf.shape)))


def _check_images(what: str, images: Tensor) -> None:
    if images.ndim != 4 or not images.is_floating_point():
        got = f"{images.dtype} {tuple(images.shape)}"
        raise InputError(expected(what, "floats of shape (b, c, h, w)", got, "convert them"))
    if images.numel() == 0:
        raise InputError(expected(what, "at least one image", f"shape {tuple(images.shape)}"))
    low, high = (float(end) for end in images.detach().aminmax())  # both are NaN if one pixel is
    if not low >= -1 or not high <= 1:
        raise InputError(expected(what, "values in [-1, 1]", f"[{low:.3g}, {high:.3g}]", "rescale them"))


def l1(x: Tensor, x_cf: Tensor) -> Scores:
    """Return the mean absolute difference of each image, on the [0, 1] scale.

    >>> l1(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)).tolist()
    [0.5]
    """
    return _change(x, x_cf).mean((1, 2, 3))


def l2(x: Tensor, x_cf: Tensor) -> Scores:
    """Return the root of the mean squared difference of each image, on the [0, 1] scale.

    >>> l2(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)).tolist()
    [0.5]
    """
    return _change(x, x_cf).square().mean((1, 2, 3)).sqrt()


def changed_area(x: Tensor, x_cf: Tensor, threshold: float = 0.0) -> Scores:
    """Return the share of pixels of which any channel changes by more than a threshold.

    Args:
        threshold: on the [0, 1] scale; with 0 every change counts.

    >>> x = torch.zeros(1, 3, 2, 2)
    >>> x_cf = x.clone()
    >>> x_cf[0, 1, 0, 0] = 0.1
    >>> changed_area(x, x_cf).tolist()
    [0.25]
    """
    if not 0 <= threshold < 1:
        raise InputError(expected("threshold", "a number from 0 to below 1", threshold))
    return (_change(x, x_cf).amax(1) > threshold).double().mean((1, 2))


def ssim(x: Tensor, x_cf: Tensor) -> Scores:
    """Return the structural similarity of each image (Wang et al. 2004), mean over channels; 1 = equal.

    Only windows that lie inside the image count, as in scikit-image.

    Raises:
        InputError: an image is smaller than the window of 11 pixels.

    >>> ssim(torch.zeros(1, 1, 16, 16), torch.zeros(1, 1, 16, 16)).tolist()
    [1.0]
    """
    check_pair(x, x_cf)
    if min(x.shape[2:]) < WINDOW:
        size = f"{x.shape[2]}x{x.shape[3]}"
        raise InputError(expected("images for SSIM", f"at least {WINDOW}x{WINDOW} pixels", size))
    a, b = _unit(x), _unit(x_cf)
    mean_a, mean_b, aa, bb, ab = (_blurred(part) for part in (a, b, a * a, b * b, a * b))
    squares, product = mean_a**2 + mean_b**2, mean_a * mean_b
    light = (2 * product + C1) / (squares + C1)
    structure = (2 * (ab - product) + C2) / (aa + bb - squares + C2)
    return (light * structure).mean((1, 2, 3))


def _change(x: Tensor, x_cf: Tensor) -> Images:
    check_pair(x, x_cf)
    return (_unit(x) - _unit(x_cf)).abs()


def _unit(x: Images) -> Images:
    """Move images to [0, 1]; exact, so different pixels stay different."""
    held = x.detach().cpu() if x.device.type == "mps" else x.detach()  # MPS has no float64
    return (held.double() + 1) / 2


def _blurred(x: Images) -> Float[Tensor, "b c inner_h inner_w"]:
    """Weigh the neighbours of each pixel by a Gaussian, columns then rows, without padding."""
    # Shifted sums in place: a convolution in float64 takes five times as long.
    for dim in (2, 3):
        inner = x.shape[dim] - WINDOW + 1
        blurred = torch.zeros_like(x.narrow(dim, 0, inner))
        for start, weight in enumerate(BELL):
            blurred.add_(x.narrow(dim, start, inner), alpha=weight)
        x = blurred
    return x
