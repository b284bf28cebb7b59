"""Files with weights are data: nothing in them is ever run."""

import hashlib
import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.errors import CheckpointError, expected

Weights = dict[str, Tensor]

SAFE = ".safetensors"
PICKLED = (".pt", ".pth", ".ckpt", ".bin")
# Where training programs put the weights, best first: averaged weights are the ones to sample with.
NESTS = ("ema", "ema_state_dict", "state_dict", "model_state_dict", "model")
PREFIXES = ("module.", "model.", "_orig_mod.")
ZIP, PICKLE = b"PK", b"\x80"


def read_weights(path: str | Path) -> Weights:
    """Read the tensors of a safetensors file or of a PyTorch checkpoint.

    The usual wrappings (`state_dict`, `model`, `ema`, a prefix that all names share) are taken off; several
    state dicts in one file are joined under "name.". What is not a tensor is left out.

    Raises:
        CheckpointError: the file is missing, damaged, holds code or holds no weights.
    """
    path = Path(path)
    _check_file(path)
    weights = _read_safe(path) if path.suffix.lower() == SAFE else _read_pickled(path)
    if not weights:
        raise CheckpointError(expected(path.name, "a checkpoint with weights", "one without any tensor"))
    return _without_prefix(weights)


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise CheckpointError(expected(str(path), "a file with weights", "a folder", "name the file inside"))
    if not path.exists():
        raise CheckpointError(expected(str(path), "a file with weights", "nothing there", "check the path"))
    if path.suffix.lower() not in (SAFE, *PICKLED):
        endings = ", ".join((SAFE, *PICKLED))
        raise CheckpointError(expected(path.name, f"a file that ends in {endings}", repr(path.suffix)))
    if path.stat().st_size == 0:
        raise CheckpointError(expected(path.name, "a file with weights", "an empty file", "get it again"))


def _read_safe(path: Path) -> Weights:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device="cpu")
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        message = expected(path.name, "a whole safetensors file", f"a damaged one ({reason})", "get it again")
        raise CheckpointError(message) from None


def _read_pickled(path: Path) -> Weights:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd pickles: they get one of our sentences
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises anything at all on a file that is no checkpoint
        raise CheckpointError(_why_unreadable(path, error)) from None
    return _flat(_unwrapped(content)) if isinstance(content, Mapping) else {}


def _why_unreadable(path: Path, error: Exception) -> str:
    wanted = "a checkpoint of plain tensors"
    with path.open("rb") as file:
        start = file.read(2)
    zipped, pickled = start == ZIP, start[:1] == PICKLE
    if not zipped and not pickled:
        return expected(path.name, wanted, f"a file of another kind (it starts with {start!r})")
    if zipped and zipfile.is_zipfile(path) and _is_torchscript(path):
        return expected(path.name, wanted, "a TorchScript program", "save its state_dict()")
    if isinstance(error, pickle.UnpicklingError) and (pickled or zipfile.is_zipfile(path)):
        remedy = "it was not run; ask for the state_dict() as safetensors"
        return expected(path.name, wanted, "a pickle with code or Python objects", remedy)
    return expected(path.name, wanted, "a file that is cut off or damaged", "get it again")


def _is_torchscript(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _unwrapped(content: Mapping[Any, Any]) -> Mapping[Any, Any]:
    for nest in NESTS:
        inner = content.get(nest)
        if isinstance(inner, Mapping) and any(isinstance(value, Tensor) for value in inner.values()):
            return _unwrapped(inner)
    return content


def _flat(content: Mapping[Any, Any], prefix: str = "") -> Weights:
    weights: Weights = {}
    for name, value in content.items():
        if isinstance(value, Tensor):
            weights[f"{prefix}{name}"] = value.detach()
        elif isinstance(value, Mapping):
            weights |= _flat(value, f"{prefix}{name}.")
    return weights


def _without_prefix(weights: Weights) -> Weights:
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in weights):
            return _without_prefix({name.removeprefix(prefix): weights[name] for name in weights})
    return weights


def check_match(
    path: str | Path, missing: Sequence[str], surplus: Sequence[str], wrong: Sequence[str]
) -> None:
    """Raise one sentence that counts and names what does not fit, if anything.

    Args:
        wrong: descriptions of the weights that have another shape.
    """
    found = {"missing": missing, "surplus": surplus, "of another shape": wrong}
    parts = [f"{len(names)} {what} ({_first(names)})" for what, names in found.items() if names]
    if parts:
        remedy = "is this the right architecture?"
        raise CheckpointError(
            expected(Path(path).name, "weights that fit the network", ", ".join(parts), remedy)
        )


def _first(names: Sequence[str], count: int = 3) -> str:
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")


def load_into(module: nn.Module, weights: Mapping[str, Tensor], path: str | Path) -> None:
    """Put weights into a module; every name and shape must fit.

    Args:
        path: where the weights come from, for the error sentence.
    """
    own = module.state_dict()
    shared = [name for name in own if name in weights]
    wrong = [
        f"{name}: {tuple(weights[name].shape)} instead of {tuple(own[name].shape)}"
        for name in shared
        if weights[name].shape != own[name].shape
    ]
    missing = [name for name in own if name not in weights]
    check_match(path, missing, [name for name in weights if name not in own], wrong)
    cast = {name: weights[name].to(own[name].dtype).contiguous() for name in own}
    # A module built on the meta device has no memory of its own to copy into.
    module.load_state_dict(cast, strict=True, assign=any(tensor.is_meta for tensor in own.values()))


def save_weights(path: str | Path, weights: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; it is whole or not there at all."""
    from safetensors.torch import save_file

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: _packed(tensor) for name, tensor in weights.items()}, partial, {"format": "pt"})
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def halve(path: Path) -> None:
    """Keep 16 bits of each number of a safetensors file."""
    weights = {
        name: value.half() if value.is_floating_point() else value for name, value in _read_safe(path).items()
    }
    save_weights(path, weights)


def _packed(tensor: Tensor) -> Tensor:
    # safetensors refuses tensors that share memory or have holes.
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def weights_hash(source: str | Path | nn.Module | Mapping[str, Tensor]) -> str:
    """Return 16 hexadecimal digits that change with any name or number of the weights.

    >>> weights_hash({"w": torch.zeros(2)}) == weights_hash({"w": torch.zeros(2)})
    True
    """
    if isinstance(source, str | Path):
        source = read_weights(source)
    weights = source.state_dict() if isinstance(source, nn.Module) else source
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
