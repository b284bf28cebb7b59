"""Open a diffusion model from any of the usual sources, and convert it to a diffusers folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from fastdime.diffusion.denoiser import Denoiser, Network, Variance, as_denoiser
from fastdime.diffusion.folders import read_folder, variance_of, write_folder
from fastdime.diffusion.guided_unet import guided_layout, unet_from_guided
from fastdime.diffusion.medical_unet import TIME_TABLE, unet_from_medical
from fastdime.diffusion.monai_unet import EPS, unet_from_monai
from fastdime.diffusion.sidecar import Architecture, Sidecar, architecture_named, merged, read_sidecar
from fastdime.diffusion.unet import UNet
from fastdime.errors import CheckpointError, InputError, expected
from fastdime.files import check_free
from fastdime.functions import made_by, names_function
from fastdime.weights import read_weights


def load_denoiser(source: str | Path | Network | Denoiser, *, architecture: str | None = None) -> Denoiser:
    """Open a diffusion model.

    Args:
        source: a diffusers folder; a checkpoint file of guided-diffusion, of the medical program or of MONAI;
            `package.module:function`, where the function returns a denoiser or a network, or is itself
            `eps(x_t, t)`; or such an object, which is left as it is.
        architecture: name of a published model, for what a checkpoint file does not tell; a JSON beside the
            file (`model.json` for `model.pt`) is the other way to tell it.

    Raises:
        CheckpointError: the folder or file cannot be used.
        InputError: the source or the architecture is none of the known ones.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None and os.path.isfile(path):
        return _from_file(path, architecture)
    if architecture is not None:
        raise InputError(expected("architecture", "a checkpoint file to go with", repr(source)))
    if path is not None and os.path.isdir(path):
        return read_folder(path)
    if isinstance(source, Denoiser):
        return source
    if not isinstance(source, str | Path):
        return as_denoiser(source)
    if names_function(source):
        return _from_function(str(source))
    wanted = "a diffusers folder, a checkpoint file or package.module:function"
    raise CheckpointError(expected(str(source), wanted, "nothing there", "check the path"))


def _from_file(path: Path, architecture: str | None) -> Denoiser:
    weights = read_weights(path)
    form = _form(weights, path)
    told = read_sidecar(path)
    name = architecture or told.architecture
    if name is not None:
        named = architecture_named(name)
        _check_architecture(name, named, form, weights, path)
        told = merged(path, told, named.known.model_copy(update={"architecture": name}))
    if form == "guided-diffusion":
        return _open_guided(weights, told, path)
    return _open_medical(weights, told, path) if form == "medical" else _open_monai(weights, told, path)


def _form(weights: Mapping[str, Tensor], path: Path) -> str:
    """Recognise the program that made the weights by their names."""
    if "input_blocks.0.0.weight" in weights and "output_blocks.0.0.in_layers.0.weight" in weights:
        return "guided-diffusion"
    if TIME_TABLE in weights:
        return "medical"
    if "conv_in.conv.weight" in weights and "time_embed.0.weight" in weights:
        return "monai"
    got, remedy = f"names like {', '.join(list(weights)[:3])}", "convert it, or give package.module:function"
    if "input_blocks.0.0.weight" in weights:
        got, remedy = "an encoder without a way up", "this is a classifier, not a denoiser"
    elif "conv_in.weight" in weights:
        got, remedy = "weights of a diffusers network alone", "give the folder with config.json"
    wanted = "weights of guided-diffusion, the medical program or MONAI"
    raise CheckpointError(expected(path.name, wanted, got, remedy))


def _check_architecture(
    name: str, named: Architecture, form: str, weights: Mapping[str, Tensor], path: Path
) -> None:
    difference: tuple[str, str] | None = None
    if named.form != form:
        difference = f"{named.form} weights", f"{form} weights"
    elif named.layout is not None:
        difference = named.layout.difference(guided_layout(weights, path))
    if difference is not None:
        wanted = f"{difference[0]}, as {name} has"
        raise CheckpointError(expected(path.name, wanted, difference[1], "name another architecture"))


def _open_guided(weights: Mapping[str, Tensor], told: Sidecar, path: Path) -> Denoiser:
    told.require(path, "num_heads", "diffusion_steps")
    new_order = bool(told.use_new_attention_order)
    unet = unet_from_guided(
        weights, told.heads(path), new_order=new_order, image_size=told.image_size, path=path
    )
    # Without learned variances its programs use the larger of the two fixed ones.
    return _denoiser(unet, told, "fixed_large", path)


def _open_medical(weights: Mapping[str, Tensor], told: Sidecar, path: Path) -> Denoiser:
    rows = len(weights[TIME_TABLE])
    if told.diffusion_steps not in (None, rows):
        raise CheckpointError(expected(path.name, f"a time table of {told.diffusion_steps} rows", rows))
    unet = unet_from_medical(weights, image_size=told.image_size, path=path)
    return _denoiser(unet, told.model_copy(update={"diffusion_steps": rows}), "fixed_large", path)


def _open_monai(weights: Mapping[str, Tensor], told: Sidecar, path: Path) -> Denoiser:
    told.require(path, "num_head_channels", "norm_num_groups", "diffusion_steps")
    unet = unet_from_monai(
        weights,
        told.num_head_channels or 0,
        told.norm_num_groups or 0,
        eps=told.norm_eps or EPS,
        image_size=told.image_size,
        path=path,
    )
    return _denoiser(unet, told, "fixed_small", path)


def _denoiser(unet: UNet, told: Sidecar, usual: Variance, path: Path) -> Denoiser:
    variance = variance_of(unet, told.variance, usual, path)
    prediction = told.prediction or "epsilon"
    return as_denoiser(unet.eval(), told.schedule(), prediction=prediction, variance=variance)


def _from_function(source: str) -> Denoiser:
    made = made_by(source, "denoiser", (nn.Module, Denoiser))
    if not callable(made) and not isinstance(made, Denoiser):
        wanted = "a denoiser, a network or a callable eps(x_t, t)"
        raise InputError(expected(f"denoiser {source}", wanted, type(made).__name__))
    denoiser = made if isinstance(made, Denoiser) else as_denoiser(made)
    if isinstance(denoiser.network, nn.Module):
        denoiser.network.eval()
    return denoiser


@dataclass(frozen=True)
class Converted:
    """What `convert` wrote.

    Attributes:
        plain: `UNet2DModel.from_pretrained(folder)` opens it too, not only `load_denoiser`.
    """

    folder: Path
    parameters: int
    plain: bool

    def __str__(self) -> str:
        """Say what was written and what opens it."""
        opener = (
            "diffusers and fastdime open it"
            if self.plain
            else ("only fastdime opens it: diffusers has no setting for a number of heads at several widths")
        )
        return f"{self.folder}: {self.parameters / 1e6:.1f} M weights; {opener}"


def convert(source: str | Path, out: str | Path, architecture: str | None = None) -> Converted:
    """Write any model that `load_denoiser` opens and whose network is a U-Net as a diffusers folder.

    Args:
        out: a folder that does not exist yet or is empty.
    """
    folder = Path(out)
    check_free(folder)
    denoiser = load_denoiser(source, architecture=architecture)
    network = write_folder(denoiser, folder)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return Converted(folder, parameters, not isinstance(network.config.attention_head_dim, str))
