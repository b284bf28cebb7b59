"""What is written about a classifier, how it is read, and what is said when it is wrong."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, validate_call
from torch import nn

from fastdime.classifiers.networks import ARCHITECTURES, Architecture
from fastdime.classifiers.wrapper import ImageClassifier, Kind, Output
from fastdime.errors import FastdimeError, InputError, expected, unknown

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")


class ClassifierSpec(BaseModel):
    """What classifier.json says; the fields after `arguments` are those of ImageClassifier.

    Attributes:
        architecture: name of the network; only for weights, which do not say what they are weights of.
        arguments: of the network; what is left out is read from the weights.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str | None = None
    arguments: dict[str, JsonValue] = {}
    kind: Kind = "binary"
    column: int | None = None
    size: int | None = None
    channels: int | None = None
    low: float = -1.0
    high: float = 1.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    timed: bool = False
    output: Output = "logit"

    def wrap(self, module: Any) -> ImageClassifier:
        """Return the classifier that these settings make of a network."""
        return ImageClassifier(module, **self.model_dump(exclude={"architecture", "arguments"}))

    def completed(self, *more: "ClassifierSpec") -> "ClassifierSpec":
        """Return what this, then `more`, set, on top of what is known of the named architecture."""
        told: dict[str, Any] = {}
        for spec in (self, *more):
            told |= spec.model_dump(exclude_unset=True)
        known = architecture(told["architecture"]).settings if told.get("architecture") else {}
        return ClassifierSpec(**{**known, **told})


def build_network(name: str, **arguments: Any) -> nn.Module:
    """Build a network of ARCHITECTURES by name, with weights at random.

    >>> import torch
    >>> build_network("small-cnn", channels=1)(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2, 1])
    """
    return called(architecture(name).build, arguments, f"arguments of {name}")


def called(function: Callable[..., Result], arguments: Mapping[str, Any], where: str) -> Result:
    """Call a function with arguments from a file or a user; wrong ones become one sentence."""
    try:
        return validate_call(function)(**arguments)
    except ValidationError as error:
        raise InputError(refusal(error, where, [*inspect.signature(function).parameters])) from None


def architecture(name: str) -> Architecture:
    """Look a network up by name."""
    if name not in ARCHITECTURES:
        raise InputError(unknown("architecture of the classifier", name, ARCHITECTURES))
    return ARCHITECTURES[name]


def checked(model: type[Model], values: Any, where: str, kind: type[FastdimeError]) -> Model:
    """Make a model of values; what is wrong with them becomes one sentence that begins with `where`."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise kind(refusal(error, where, list(model.model_fields))) from None


def refusal(error: ValidationError, where: str, names: list[str]) -> str:
    """Say in one sentence the first thing that is wrong; `names` are those that would be right."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return unknown(where, place, names)
    if first["type"] in ("missing", "missing_argument"):
        return expected(where, f"a value for {place}", "none", "write it")
    wanted = first["msg"].removeprefix("Input should be ")
    return expected(f"{where}: {place}" if place else where, wanted, repr(first["input"]))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill; it takes its place only when everything was written."""
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise InputError(
            expected(str(path), "a new or empty folder", "one with files", "choose another name")
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise InputError(expected(str(path), "a place that can be written to", error.strerror)) from None
    with temporary as name:
        folder = Path(name) / path.name
        folder.mkdir()
        yield folder
        folder.replace(path)
