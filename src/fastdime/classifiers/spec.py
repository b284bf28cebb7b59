"""What is written about a classifier, and how it is read."""

from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from torch import nn

from fastdime.classifiers.networks import ARCHITECTURES, Architecture
from fastdime.classifiers.wrapper import ImageClassifier, Kind, Output
from fastdime.configs import called
from fastdime.errors import InputError, unknown


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


def architecture(name: str) -> Architecture:
    """Look a network up by name."""
    if name not in ARCHITECTURES:
        raise InputError(unknown("architecture of the classifier", name, ARCHITECTURES))
    return ARCHITECTURES[name]
