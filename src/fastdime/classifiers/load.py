"""Classifiers from wherever users keep them, and the folder in which this library keeps them.

A folder holds `classifier.json` (a `ClassifierSpec`) and `model.safetensors`.
"""

import os
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fastdime.classifiers.networks import ARCHITECTURES
from fastdime.classifiers.onnx import is_onnx, open_onnx
from fastdime.classifiers.spec import (
    ClassifierSpec,
    architecture,
    build_network,
)
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.configs import called, checked, read_json
from fastdime.errors import CheckpointError, InputError, expected, unknown
from fastdime.files import new_folder
from fastdime.functions import made_by, names_function
from fastdime.weights import load_into, read_weights, save_weights

SPEC_FILE = "classifier.json"
WEIGHTS_FILE = "model.safetensors"


def load_classifier(source: object, **settings: Any) -> ImageClassifier:
    """Open a classifier.

    A TorchScript file is no pickle, but it is a program: TorchScript's own interpreter runs it, with tensor
    operations and no Python. So is an ONNX file, which onnxruntime runs. Other files are weights, and nothing
    in them is run.

    Args:
        source: a network or any function of images; `package.module:function` that returns one; a TorchScript
            or ONNX file; a folder with classifier.json; or a file with weights, which needs the name of its
            architecture in a JSON file beside it (weights.json) or in `settings`.
        settings: fields of ClassifierSpec; they take precedence over those in a file.

    >>> classifier = load_classifier(lambda x: x.mean((1, 2, 3)), low=0, high=1)
    >>> classifier.logits(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.int64))
    tensor([[0.5000]])
    """
    classifier = load_outputs(source, **settings)
    classifier.check_column()
    return classifier


def load_outputs(source: object, **settings: Any) -> ImageClassifier:
    """Open a classifier as `load_classifier` does, to be asked for all its outputs: no column is needed.

    >>> classifier = load_outputs(lambda x: x.mean((2, 3)), kind="multilabel")
    >>> classifier.outputs(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.int64))
    tensor([[0., 0., 0.]])
    """
    given = checked(ClassifierSpec, settings, "load_classifier", InputError)
    if not isinstance(source, str | Path):
        return _wrapped(source, given)
    path = Path(source)
    if os.path.isdir(path):
        return _from_folder(path, given)
    if os.path.isfile(path):
        return _from_file(path, given)
    if names_function(source):
        return _wrapped(_made_by(str(source)), given)
    wanted = "a file, a folder with classifier.json or package.module:function"
    raise InputError(expected(f"classifier {source}", wanted, "nothing of that name", "check the path"))


def save_classifier(path: str | Path, module: nn.Module, spec: ClassifierSpec) -> None:
    """Write a new folder that `load_classifier` opens; it is whole or not there at all.

    Args:
        spec: must name the architecture that the module was built as.
    """
    if spec.architecture is None:
        raise InputError(_name_wanted("spec of the classifier"))
    with new_folder(Path(path)) as folder:
        save_weights(folder / WEIGHTS_FILE, module.state_dict())
        text = spec.completed().model_dump_json(indent=2)
        (folder / SPEC_FILE).write_text(f"{text}\n", encoding="utf-8")
        load_classifier(folder)  # a module that was not built as its spec says is refused here, not later


def _wrapped(source: object, given: ClassifierSpec) -> ImageClassifier:
    if given.architecture is not None or given.arguments:
        remedy = "leave architecture and arguments out"
        raise InputError(
            expected("architecture", "nothing, for a network that is whole", given.architecture, remedy)
        )
    if isinstance(source, ImageClassifier):
        return replace(source, **given.model_dump(exclude_unset=True))
    return given.wrap(source)


def _stored(path: Path) -> ClassifierSpec:
    spec = checked(ClassifierSpec, read_json(path), str(path), CheckpointError)
    if spec.architecture not in (None, *ARCHITECTURES):
        raise CheckpointError(unknown(f"{path}: architecture", str(spec.architecture), ARCHITECTURES))
    return spec


def _from_folder(folder: Path, given: ClassifierSpec) -> ImageClassifier:
    missing = [name for name in (SPEC_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    if missing:
        wanted = f"a folder with {SPEC_FILE} and {WEIGHTS_FILE}"
        raise CheckpointError(expected(f"classifier {folder}", wanted, f"no {missing[0]}", "check the path"))
    return _from_weights(folder / WEIGHTS_FILE, _stored(folder / SPEC_FILE).completed(given))


def _from_file(path: Path, given: ClassifierSpec) -> ImageClassifier:
    places = (path.with_name(f"{path.name}.json"), path.with_suffix(".json"))
    specs = [_stored(place) for place in places if place.is_file()][:1]
    spec = ClassifierSpec().completed(*specs, given)
    if _is_torchscript(path):
        return _wrapped(_torchscript(path), spec)
    if is_onnx(path):
        return _wrapped(open_onnx(path), spec)
    return _from_weights(path, spec)


def _from_weights(path: Path, spec: ClassifierSpec) -> ImageClassifier:
    found = read_weights(path)  # a file that is none is told first
    if spec.architecture is None:
        raise CheckpointError(_name_wanted(str(path)))
    known = architecture(spec.architecture)
    weights = known.rename(found)
    if known.convert is not None and known.foreign in weights:
        make = called(known.convert, spec.arguments, f"arguments of {spec.architecture}")
        return spec.wrap(make(weights, path=path).eval())
    # Random weights come first, and are no reason to move the random numbers of the user.
    with torch.random.fork_rng(devices=[]):
        module = build_network(spec.architecture, **{**known.told(weights), **spec.arguments})
    load_into(module, {**_counters(module), **weights}, path)
    return spec.wrap(module.eval())


def _counters(module: nn.Module) -> dict[str, torch.Tensor]:
    # Checkpoints from before PyTorch 0.4.1 lack the step counters of batch norms; evaluation needs none.
    return {
        name: value for name, value in module.state_dict().items() if name.endswith("num_batches_tracked")
    }


def _name_wanted(what: str) -> str:
    example = 'for example {"architecture": "resnet18"} in a JSON file beside the weights'
    return expected(
        what, f"the name of an architecture ({', '.join(ARCHITECTURES)})", "none", f"give it, {example}"
    )


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _torchscript(path: Path) -> nn.Module:
    load: Callable[..., nn.Module] = torch.jit.load
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the user has the file and cannot help it
            module = load(path, map_location="cpu")
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            expected(str(path), "a whole TorchScript file", f"a damaged one ({reason})")
        ) from None
    return module.eval()


def _made_by(source: str) -> object:
    made = made_by(source, "classifier", (nn.Module, ImageClassifier))
    if not callable(made) and not isinstance(made, ImageClassifier):
        wanted = "a function that returns a network"
        raise InputError(expected(f"classifier {source}", wanted, type(made).__name__))
    return made
