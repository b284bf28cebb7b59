"""SmoothGrad (Smilkov et al. 2017): on which pixels the answer of an audited model depends.

It shows where a model looks, not whether the shortcut matters: what the counterfactuals measure.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fastdime.audit.models import Audited
from fastdime.data.io import write_image
from fastdime.errors import InputError, MissingExtra, expected
from fastdime.files import not_writable
from fastdime.runs import file_stem

EXTRA = "saliency"
SAMPLES, AT_ONCE = 32, 8  # noisy versions of an image
NOISE = 0.15  # their spread, as a share of the range of the image; the authors take 0.1 to 0.2
WHITE = 99  # percentile of the gradient that is white
SEED = 0


def write_smoothgrad(
    model: Audited, images: Iterable[tuple[str, Tensor]], output: int, folder: str | Path
) -> list[Path]:
    """Write a gray picture for each image, FOLDER/STEM.png, white where one output depends on the pixels.

    Args:
        images: ids and images in [-1, 1], (c, h, w).
        output: number of the output, from 0.

    Returns:
        The pictures; there is none where the model has no gradient, as those of ONNX files.

    Raises:
        MissingExtra: captum is not installed.
        InputError: the model has no such output or cannot take the images.
    """
    if not 0 <= output < len(model.outputs):
        wanted = f"a number from 0 to {len(model.outputs) - 1}"
        raise InputError(expected(f"output of model {model.name}", wanted, output))
    if model.scores is None:
        return []
    tunnel = _tunnel(model.scores)
    written = []
    for image_id, x in images:
        model.ask(x[None])  # what does not fit the model is told here, so that below it is the gradient
        if _has_gradient(model.scores, x, output):
            written.append(_write(Path(folder), image_id, _smoothgrad(tunnel, x, output)))
    return written


def _tunnel(scores: Callable[[Tensor], Tensor]) -> Any:
    try:
        from captum.attr import NoiseTunnel, Saliency
    except ImportError:
        raise MissingExtra("captum", "SmoothGrad", EXTRA) from None
    return NoiseTunnel(Saliency(scores))


def _has_gradient(scores: Callable[[Tensor], Tensor], x: Tensor, output: int) -> bool:
    """Tell whether a gradient gets from the output to the image; a user's function may lose it anywhere."""
    images = x[None].clone().requires_grad_()
    try:
        with torch.enable_grad():
            score = scores(images)[:, output].sum()
            [found] = torch.autograd.grad(score, [images], allow_unused=True)
    except (InputError, RuntimeError):
        return False
    return found is not None and bool(found.isfinite().all())


def _smoothgrad(tunnel: Any, x: Float[Tensor, "c h w"], output: int) -> Float[Tensor, "h w"]:
    spread = NOISE * float(x.max() - x.min())
    # captum draws from the generator of the process, on the device of the image: here the CPU.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        found: Tensor = tunnel.attribute(
            x[None].cpu(),
            nt_samples=SAMPLES,
            nt_samples_batch_size=AT_ONCE,
            stdevs=spread,
            target=output,
            abs=False,  # of the mean only: what noise turns to and fro is to cancel out
        )
    return found[0].abs().amax(0)


def _write(folder: Path, image_id: str, gradient: Float[Tensor, "h w"]) -> Path:
    white = float(np.percentile(gradient.numpy(), WHITE)) or float(gradient.max()) or 1.0
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from None
    path = folder / f"{file_stem(image_id)}.png"
    write_image(path, 2 * (gradient[None] / white).clamp(0, 1) - 1)
    return path
