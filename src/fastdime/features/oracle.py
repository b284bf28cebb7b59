"""What a classifier sees before it decides: the input of its last linear layer."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.errors import InputError, expected


@dataclass
class _Catch:
    """Remembers what the linear layer that was used last was given."""

    seen: list[Tensor] = field(default_factory=list)

    def __call__(self, _module: nn.Module, given: tuple[Any, ...]) -> None:
        self.seen[:] = [given[0].detach()]


@dataclass(frozen=True)
class Penultimate:
    """Features of a classifier, with its own resizing, channels and range; hooks are taken off after use."""

    classifier: ImageClassifier
    name: str

    def __call__(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the features of images in [-1, 1]."""
        catch = _Catch()
        with ExitStack() as stack:
            for layer in linear_layers(self.classifier, self.name):
                stack.callback(layer.register_forward_pre_hook(catch).remove)
            self.classifier.logits(x, torch.zeros(len(x), dtype=torch.int64, device=x.device))
        if not catch.seen:
            raise InputError(expected(f"classifier {self.name}", "a linear layer that is used", "none"))
        return catch.seen[0].flatten(1)


def linear_layers(classifier: ImageClassifier, name: str) -> list[nn.Linear]:
    """Return the linear layers of a classifier; there must be one."""
    module = classifier.module
    parts = module.modules() if isinstance(module, nn.Module) else ()
    found = [part for part in parts if isinstance(part, nn.Linear)]
    if not found:
        remedy = "give a module:function that returns the features themselves"
        raise InputError(expected(f"classifier {name}", "a network with a linear layer", "none", remedy))
    return found


def on_device(classifier: ImageClassifier, device: str) -> ImageClassifier:
    """Move the network of a classifier."""
    module = classifier.module
    return replace(classifier, module=module.to(device)) if isinstance(module, nn.Module) else classifier
