"""How a data set is worked through, and what is written down about it."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from fastdime import __version__
from fastdime.counterfactuals.explainer import Explainer
from fastdime.data.table import Table
from fastdime.diffusion.engine import OnnxUNet
from fastdime.errors import InputError, expected
from fastdime.runs import CONFIG, RECORDS, read_run
from fastdime.weights import weights_hash

KIND = "explain"  # of a run folder
CPU_BATCH = 8
GPU_BATCH = 32


class RunOptions(BaseModel):
    """What belongs to the data set; the method has its own settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str = Field("flip", description="flip, flip:COLUMN (1 - label), a class number, or column:COLUMN")
    batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = Field("auto", description="images at a time")
    limit: Annotated[int, Field(ge=1)] | None = Field(None, description="only the first so many images")
    size: Annotated[int, Field(ge=8)] | None = Field(None, description="resize and crop to this square")
    convert: bool = Field(False, description="turn gray into colour or colour into gray where needed")
    allow: str | None = Field(None, description="mask image, or column of them: changes only there")
    forbid: str | None = Field(None, description="mask image, or column of them: no changes there")
    strict: bool = Field(False, description="stop at the first image that cannot be used")
    root: Path | None = Field(None, description="folder that paths in the table are relative to")


def run_options(**values: Any) -> RunOptions:
    """Make options from what a command line gave."""
    try:
        return RunOptions(**values)
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{str(first['loc'][0]).replace('_', '-')}"
        wanted = first["msg"].removeprefix("Input should be ")
        raise InputError(expected(option, wanted, repr(first["input"]))) from None


def settled_batch_size(options: RunOptions, out: Path, explainer: Explainer) -> int:
    """Choose the batch size; a run that goes on keeps the one it has, because it decides the last bits."""
    if options.batch_size != "auto":
        return options.batch_size
    if all(os.path.isfile(out / name) for name in (CONFIG, RECORDS)):
        recorded = read_run(out)[0].get("batch_size")
        if isinstance(recorded, int):
            return recorded
    return CPU_BATCH if device_of(explainer).type == "cpu" else GPU_BATCH


def run_config(
    table: Table,
    explainer: Explainer,
    options: RunOptions,
    batch_size: int,
    sources: Mapping[str, str],
    classes: int,
) -> dict[str, Any]:
    """Everything that a result depends on; a run goes on only when all of it is the same."""
    return {
        "kind": KIND,
        "versions": {"fastdime": __version__, "torch": str(torch.__version__)},
        "method": sources.get("method"),
        "settings": explainer.resolved.model_dump(mode="json"),
        "seed": explainer.seed,
        "data": {
            "images": len(table),
            "ids": _digest(table.ids),
            "files": _digest(map(_file, table.paths)),
            "used": _used(table, options),
        },
        "denoiser": {
            **described(explainer.denoiser, sources.get("denoiser")),
            "betas": _digest(explainer.denoiser.schedule.betas.tolist()),
        },
        "classifier": described(explainer.classifier, sources.get("classifier")),
        "features": described(explainer.features, sources.get("features")) if explainer.features else None,
        "classes": classes,
        "batch_size": batch_size,
        **options.model_dump(mode="json", exclude={"batch_size", "strict", "root"}),
    }


def _used(table: Table, options: RunOptions) -> dict[str, str]:
    """Fingerprints of the columns and mask images that the options name."""
    columns = {**table.labels, **table.groups}
    names = [options.target.partition(":")[2], options.allow, options.forbid]
    return {
        name: _digest(columns[name] if name in columns else [Path(name).read_bytes()])
        for name in names
        if name
    }


def _file(path: Path) -> tuple[str, int]:
    """Tell a file apart from another of its name: where it is and how long, not what is in it."""
    try:
        return os.path.abspath(path), os.stat(path).st_size
    except OSError:
        return os.path.abspath(path), -1


def _digest(values: Iterable[object]) -> str:
    # repr, because a file name may hold bytes that are no text.
    return hashlib.sha256("\n".join(map(repr, values)).encode()).hexdigest()[:16]


def described(model: object, source: str | None) -> dict[str, Any]:
    """Name a model, its weights by their hash, and how its input and output are read."""
    network, engine = network_of(model), {}
    if isinstance(network, OnnxUNet):  # the same weights, run by something else
        network, engine = network.network, {"engine": "onnx"}
    name = type(network if network is not None else model).__qualname__
    weights = weights_hash(network) if network is not None else None
    return {"source": source or name, "weights": weights, **_plain_fields(model), **engine}


def _plain_fields(model: object) -> dict[str, Any]:
    if not is_dataclass(model):
        return {}
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | tuple)}


def network_of(model: object) -> nn.Module | None:
    """Return the network itself, or the one that a classifier or denoiser wraps."""
    parts = (model, getattr(model, "module", None), getattr(model, "network", None))
    return next((part for part in parts if isinstance(part, nn.Module)), None)


def _weights(model: object) -> list[torch.Tensor]:
    network = network_of(model)
    return [] if network is None else [*network.parameters(), *network.buffers()]


def _models(explainer: Explainer) -> tuple[object, ...]:
    return explainer.denoiser, explainer.classifier, explainer.features


def moved(explainer: Explainer, device: str) -> Explainer:
    """Move the networks to a device, in place."""
    for network in map(network_of, _models(explainer)):
        if network is not None:
            network.to(device)
    return explainer


def device_of(explainer: Explainer) -> torch.device:
    """Return where the networks are; the CPU when none has weights."""
    weights = [weight for model in _models(explainer) for weight in _weights(model)]
    return weights[0].device if weights else torch.device("cpu")
