"""The door: what comes from a user is refused here with a sentence, not deep inside with a traceback."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fastdime.counterfactuals.methods import events
from fastdime.counterfactuals.settings import GuidedSettings, Settings
from fastdime.diffusion.denoiser import Denoiser
from fastdime.errors import InputError, expected


def check_models(denoiser: object, classifier: object) -> None:
    """Refuse bare networks: nobody has said what goes in and what comes out."""
    if not isinstance(denoiser, Denoiser):
        got = type(denoiser).__name__
        raise InputError(expected("denoiser", "a Denoiser", got, "use fastdime.load_denoiser(...)"))
    if not callable(getattr(classifier, "logits", None)):
        remedy = "use fastdime.load_classifier(...)"
        raise InputError(
            expected("classifier", "an object with logits(x, time)", type(classifier).__name__, remedy)
        )


def check_images(x: object, denoiser: Denoiser) -> None:
    """Refuse what is not a batch of images in [-1, 1] that the denoiser can take."""
    if not isinstance(x, Tensor) or x.ndim != 4 or x.dtype != torch.float32:
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(expected("images", "float32 tensor of shape (b, c, h, w)", got, "convert them"))
    if len(x) == 0:
        raise InputError(expected("images", "at least one image", "none"))
    channels = denoiser.channels
    if x.shape[1] not in ((1, 3) if channels is None else (channels,)):
        raise InputError(expected("images", f"{channels or '1 or 3'} channels", x.shape[1]))
    if denoiser.size is not None and tuple(x.shape[2:]) != (denoiser.size, denoiser.size):
        size = f"{denoiser.size}x{denoiser.size} pixels, the size of the denoiser"
        raise InputError(expected("images", size, f"{x.shape[2]}x{x.shape[3]}", "resize them"))
    if not x.isfinite().all():
        raise InputError(expected("images", "finite numbers", "NaN or infinity"))
    low, high = float(x.min()), float(x.max())
    if low < -1 or high > 1:
        raise InputError(expected("images", "values in [-1, 1]", f"[{low:.3g}, {high:.3g}]", "rescale them"))


def check_names(names: Sequence[str], images: int) -> None:
    """Refuse ids that do not name every image apart."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if len(names) != images or doubled:
        got = f"{doubled[0]!r} more than once" if doubled else f"{len(names)} names"
        raise InputError(expected("ids", f"{images} different names", got))


def check_region(region: object, x: Tensor) -> None:
    """Refuse a region that is no mask of these images."""
    wanted = (len(x), 1, *x.shape[2:])
    if region is None or (
        isinstance(region, Tensor) and region.dtype == torch.bool and region.shape == wanted
    ):
        return
    got = f"{region.dtype} {tuple(region.shape)}" if isinstance(region, Tensor) else type(region).__name__
    raise InputError(expected("region", f"booleans of shape {wanted}", got))


def check_seed(seed: object) -> None:
    """Refuse a seed that is no whole number from 0."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(expected("seed", "a whole number >= 0", seed))


def check_record(record: object, settings: Settings) -> None:
    """Refuse numbers of steps that the method does not have."""
    steps = events(settings)
    if isinstance(record, Sequence) and all(isinstance(step, int) and 0 <= step < steps for step in record):
        return
    raise InputError(expected("record", f"a list of steps from 0 to {steps - 1}", record))


def check_features(features: object, settings: Settings) -> None:
    """Refuse a perceptual loss without features."""
    weight = settings.perceptual if isinstance(settings, GuidedSettings) else 0
    if weight and features is None:
        wanted = f"a feature network, as perceptual = {weight:g}"
        raise InputError(expected("features", wanted, "none", "set perceptual to 0"))


def check_weights(settings: Settings, classes: int) -> None:
    """Refuse weights of which some target class would have none."""
    weights = getattr(settings, "l1", None)
    if isinstance(weights, tuple) and len(weights) != classes:
        raise InputError(expected("l1", f"one weight, or one for each of {classes} classes", weights))
