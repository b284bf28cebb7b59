"""diffusers folders: a U-Net and a scheduler configuration, read and written."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from fastdime.configs import read_json
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser, Prediction, Variance, as_denoiser
from fastdime.diffusion.patched import PatchedUNet
from fastdime.diffusion.schedule import Schedule
from fastdime.diffusion.sidecar import schedule_from
from fastdime.diffusion.unet import UNet, build_unet
from fastdime.errors import CheckpointError, InputError, expected, unknown
from fastdime.files import new_folder
from fastdime.weights import load_into, read_weights

KINDS = {"linear": "linear", "scaled_linear": "scaled_linear", "squaredcos_cap_v2": "cosine"}
PREDICTIONS: Mapping[str, Prediction] = {
    "epsilon": "epsilon",
    "v_prediction": "v",
    "sample": "sample",
    "edm": "edm",  # ours; diffusers writes it down, and refuses to sample with it
}
VARIANCES: Mapping[str, Variance] = {
    "fixed_small": "fixed_small",
    "fixed_small_log": "fixed_small",
    "fixed_large": "fixed_large",
    "fixed_large_log": "fixed_large",
    "learned_range": "learned_range",
}
T = TypeVar("T")

USUAL = {"num_train_timesteps": 1000, "beta_start": 0.0001, "beta_end": 0.02}
EXTRA = "fastdime.json"  # what a diffusers folder has no place for
FILES = ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin")
# Names of attention layers in folders written before 2023.
OLDER = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}


def read_folder(folder: Path) -> Denoiser:
    """Open a folder with a `UNet2DModel` and a scheduler, at the top or in `unet/` and `scheduler/`."""
    network = _find(folder, "config.json", "unet", "a diffusers folder with a UNet2DModel")
    scheduler = _find(
        folder, "scheduler_config.json", "scheduler", "the scheduler the model was trained with"
    )
    settings = read_json(scheduler)
    unet = _read_unet(network)
    return as_denoiser(
        _patched(unet, network.with_name(EXTRA)).eval(),
        _schedule(settings, scheduler),
        prediction=_choice(PREDICTIONS, settings, "prediction_type", "epsilon", scheduler),
        variance=_variance(unet, settings, scheduler),
    )


def _find(folder: Path, name: str, inside: str, wanted: str) -> Path:
    for path in (folder / name, folder / inside / name):
        if path.is_file():
            return path
    raise CheckpointError(expected(str(folder), f"{wanted} ({name}, here or in {inside}/)", "no such file"))


def _read_unet(path: Path) -> UNet:
    config = read_json(path)
    if config.get("_class_name", "UNet2DModel") != "UNet2DModel":
        raise CheckpointError(expected(str(path), "a UNet2DModel", config["_class_name"]))
    if config.get("class_embed_type") or config.get("num_class_embeds"):
        raise CheckpointError(expected(str(path), "a model without class labels", "a class-conditional one"))
    files = [path.with_name(name) for name in FILES]
    file = next((file for file in files if file.is_file()), files[0])
    weights = read_weights(file)
    try:
        unet = build_unet(config)
    except (TypeError, ValueError) as error:  # what diffusers says about values it cannot use
        got = " ".join(str(error).split())
        raise CheckpointError(expected(str(path), "the configuration of a UNet2DModel", got)) from None
    load_into(unet, _today(weights), file)
    return unet


def _patched(unet: UNet, extra: Path) -> UNet | PatchedUNet:
    """Fold pixels into channels, if the folder says so."""
    if not extra.is_file():
        return unet
    patch = read_json(extra).get("patch")
    if not isinstance(patch, int) or patch < 1 or unet.config.in_channels % patch**2:
        raise CheckpointError(expected(str(extra), "a patch size that fits the U-Net", patch))
    return PatchedUNet(unet, patch)


def _today(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    pattern = re.compile(rf"(attentions\.\d+)\.({'|'.join(OLDER)})\.")
    return {pattern.sub(lambda m: f"{m[1]}.{OLDER[m[2]]}.", name): weights[name] for name in weights}


def _choice(table: Mapping[str, T], settings: Mapping[str, Any], name: str, usual: str, path: Path) -> T:
    value = str(settings.get(name) or usual)
    if value not in table:
        raise CheckpointError(unknown(f"{name} in {path}", value, table))
    return table[value]


def _schedule(settings: Mapping[str, Any], path: Path) -> Schedule:
    if settings.get("rescale_betas_zero_snr"):
        wanted = "a chain that does not end in pure noise (rescale_betas_zero_snr false)"
        raise CheckpointError(expected(str(path), wanted, "true"))
    kind = _choice(KINDS, settings, "beta_schedule", "linear", path)
    steps, start, end = (settings.get(name, usual) for name, usual in USUAL.items())
    try:
        if settings.get("trained_betas") is not None:
            return sch.from_betas(np.asarray(settings["trained_betas"], dtype=np.float64))
        return schedule_from(kind, int(steps), float(start), float(end))
    except (InputError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(expected(str(path), "numbers that make a chain", f"others ({error})")) from None


def _variance(unet: UNet, settings: Mapping[str, Any], path: Path) -> Variance:
    told = (
        _choice(VARIANCES, settings, "variance_type", "fixed_small", path)
        if "variance_type" in settings
        else None
    )
    return variance_of(unet, told, "fixed_small", path)


def variance_of(unet: UNet, told: Variance | None, usual: Variance, path: Path) -> Variance:
    """Return which variance a network goes with; its number of outputs must agree.

    Args:
        usual: the choice if nothing is told and the network does not learn it.
    """
    channels, out = unet.config.in_channels, unet.config.out_channels
    variance = told or ("learned_range" if out == 2 * channels else usual)
    wanted = 2 * channels if variance == "learned_range" else channels
    if out != wanted:
        sentence = f"{wanted} output channels for {channels} inputs and variance {variance}"
        raise CheckpointError(expected(str(path), sentence, out))
    return variance


def write_folder(denoiser: Denoiser, out: Path) -> UNet:
    """Write a denoiser as a diffusers folder, which is whole or not there; return its network."""
    network, scheduler = _unet_of(denoiser), _scheduler(denoiser)
    unet = network.unet if isinstance(network, PatchedUNet) else network
    with new_folder(out) as folder:
        unet.save_pretrained(folder, safe_serialization=True)
        scheduler.save_pretrained(folder)
        if isinstance(network, PatchedUNet):
            (folder / EXTRA).write_text(json.dumps({"patch": network.patch}) + "\n", encoding="utf8")
    return unet


def _unet_of(denoiser: Denoiser) -> UNet | PatchedUNet:
    from diffusers import UNet2DModel

    if not isinstance(denoiser.network, UNet2DModel | PatchedUNet):
        got = type(denoiser.network).__name__
        raise InputError(expected("source to convert", "a checkpoint with a U-Net", got))
    return denoiser.network


def _scheduler(denoiser: Denoiser) -> Any:
    from diffusers import DDPMScheduler

    kinds, predictions = ({ours: theirs for theirs, ours in table.items()} for table in (KINDS, PREDICTIONS))
    schedule, betas = denoiser.schedule, denoiser.schedule.betas
    if not np.array_equal(schedule.network_times, np.arange(len(schedule))):
        raise InputError(expected("source to convert", "a whole chain", "a re-spaced one"))
    table = schedule.kind == "table"
    return DDPMScheduler(
        num_train_timesteps=len(schedule),
        beta_schedule="linear" if table else kinds[schedule.kind],
        beta_start=float(betas[0]),
        beta_end=float(betas[-1]),
        trained_betas=betas.tolist() if table else None,
        variance_type=denoiser.variance,
        prediction_type=predictions[denoiser.prediction],
    )
