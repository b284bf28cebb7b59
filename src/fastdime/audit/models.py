"""The models to be audited: whatever they are, each of their outputs as log-odds."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from fastdime.audit.answers import ONE_OUTPUT, Rows, check_outputs
from fastdime.classifiers.load import load_outputs
from fastdime.classifiers.onnx import OnnxNetwork
from fastdime.classifiers.wrapper import SMALLEST, ImageClassifier
from fastdime.errors import InputError, expected
from fastdime.functions import names_function
from fastdime.scores import log_odds

BATCH = 64
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Audited:
    """A model that can be asked.

    Attributes:
        name: how the report calls it.
        outputs: names of the columns of its answers.
        ask: takes images in [-1, 1], (n, c, h, w), and gives the log-odds of every output. A network of two
            classes has one output, class 1; with more classes each has log p / (1 - p).
        scores: the same for some images at once, as a tensor through which gradients flow to the images; None
            for an ONNX file, which has none.
    """

    name: str
    outputs: tuple[str, ...]
    ask: Callable[[Tensor], Rows]
    scores: Callable[[Tensor], Tensor] | None = None


def open_audited(
    source: object,
    name: str | None = None,
    outputs: Sequence[str] | None = None,
    *,
    shape: Shape | None = None,
    **settings: Any,
) -> Audited:
    """Open a model and ask it about one made-up image, so that what does not fit is told at once.

    Args:
        source: as for `load_classifier`; every output of a multi-label network is asked, so `column` may be
            left out and does not matter.
        name: how to call it; unless given, after the file, the folder or the function.
        outputs: their names, in the order of the model.
        shape: (channels, height, width) of the images to come. Without it, `size` and `channels` of the model
            are used; if they are not set either, it is not asked now.
        settings: fields of ClassifierSpec.

    Raises:
        InputError, CheckpointError: it cannot be opened or asked, or there are not as many names as outputs.

    >>> model = open_audited(lambda x: x.mean((2, 3)), "means", kind="multilabel", shape=(3, 8, 8))
    >>> model.outputs, model.ask(torch.ones(1, 3, 8, 8))
    (('label 0', 'label 1', 'label 2'), array([[1., 1., 1.]]))
    """
    called = model_name(source) if name is None else name
    classifier = load_outputs(source, **settings)
    trial = _trial(classifier, shape)
    found = _asked(classifier, trial, called).shape[1] if trial is not None else None
    names = _names(classifier, found, called) if outputs is None else tuple(outputs)
    check_outputs(f"outputs of model {called}", names)
    if found is not None:
        _check_count(called, names, found)
    scores = None if isinstance(classifier.module, OnnxNetwork) else partial(_scores, classifier)
    return Audited(called, names, _Question(classifier, called, names), scores)


def parse_model(text: str) -> tuple[str, str]:
    """Part NAME=SOURCE, or name a SOURCE after its file, folder or function.

    >>> parse_model("old=nets/chest.onnx"), parse_model("nets/chest.onnx"), parse_model("my.nets:chest")
    (('old', 'nets/chest.onnx'), ('chest', 'nets/chest.onnx'), ('chest', 'my.nets:chest'))
    """
    name, equals, source = text.partition("=")
    # A path may hold "=" itself, as in runs/lr=0.1/net.pt.
    if not equals or {"/", os.sep} & set(name) or os.path.exists(text):
        name, source = model_name(text), text
    if not name.strip() or not source.strip():
        raise InputError(expected("--model", "SOURCE or NAME=SOURCE", repr(text)))
    return name, source


def parse_models(texts: Iterable[str]) -> dict[str, str]:
    """Return the sources of several models by name; no two may have the same name."""
    found: dict[str, str] = {}
    for name, source in map(parse_model, texts):
        if name in found:
            got = f"{name!r} for {found[name]} and {source}"
            raise InputError(expected("--model", "different names", got, "give NAME=SOURCE"))
        found[name] = source
    return found


def model_name(source: object) -> str:
    """Name a model after its file, folder or function; "model" if it has none of them."""
    if not isinstance(source, str | Path):
        return "model"
    path = Path(source)
    if path.is_dir():
        return path.resolve().name
    if names_function(source) and not path.exists():
        return str(source).partition(":")[2]
    return path.stem


@dataclass(frozen=True)
class _Question:
    """Asks a model for its outputs, a batch at a time."""

    classifier: ImageClassifier
    name: str
    outputs: tuple[str, ...]

    def __call__(self, x: Float[Tensor, "n c h w"]) -> Rows:
        """Return the log-odds of every output."""
        if not len(x):
            return np.zeros((0, len(self.outputs)))
        batches = (x[first : first + BATCH] for first in range(0, len(x), BATCH))
        answers = [_asked(self.classifier, batch, self.name) for batch in batches]
        for answer in answers:
            _check_count(self.name, self.outputs, answer.shape[1])
        return np.concatenate(answers)


def _asked(classifier: ImageClassifier, x: Tensor, name: str) -> Rows:
    try:
        with torch.no_grad():
            answer: Rows = _scores(classifier, x).numpy()
    except InputError as error:
        raise InputError(f"model {name}: {error}") from error
    return answer


def _scores(classifier: ImageClassifier, x: Float[Tensor, "n c h w"]) -> Float64[Tensor, "n m"]:
    place = _place(classifier.module)
    times = torch.zeros(len(x), dtype=torch.int64, device=place)
    return _log_odds(classifier.outputs(x.to(place), times).cpu().double(), classifier)


def _place(module: object) -> torch.device:
    """Return where the weights are: the user may have put them on another device."""
    weights = chain(module.parameters(), module.buffers()) if isinstance(module, nn.Module) else iter(())
    return next((weight.device for weight in weights), torch.device("cpu"))


def _log_odds(found: Float64[Tensor, "n k"], classifier: ImageClassifier) -> Float64[Tensor, "n m"]:
    if classifier.kind != "multiclass":
        return found
    if classifier.output == "probability":
        odds = found.exp().logit(eps=SMALLEST)  # no softmax: many classes at the smallest would add up
    else:
        odds = _one_against_the_rest(found)
    return odds[:, 1:] if odds.shape[1] == 2 else odds


def _one_against_the_rest(logits: Float64[Tensor, "n k"]) -> Float64[Tensor, "n k"]:
    """Return log p / (1 - p) of each class."""
    log_p = logits.log_softmax(1)
    # Only the most probable class can be so near to 1 that 1 - p has no digits and its logarithm no gradient.
    top = logits.argmax(1)
    odds = log_p - torch.log1p(-log_p.scatter(1, top[:, None], -1.0).exp())
    return odds.scatter(1, top[:, None], log_odds(logits, top)[:, None])


def _trial(classifier: ImageClassifier, shape: Shape | None) -> Tensor | None:
    """Make an image to try a model with; not an even one, which some networks divide by the spread of."""
    size, channels = classifier.size, classifier.channels
    if shape is None and size is not None and channels is not None:
        shape = (channels, size, size)
    if shape is None:
        return None
    return torch.linspace(-1, 1, shape[1] * shape[2]).reshape(1, 1, *shape[1:]).repeat(1, shape[0], 1, 1)


def _names(classifier: ImageClassifier, found: int | None, name: str) -> tuple[str, ...]:
    if classifier.kind == "binary" or (classifier.kind == "multiclass" and found == 1):
        return (ONE_OUTPUT,)
    if found is None:
        wanted, remedy = "their names, or a model with size and channels", "set size and channels"
        raise InputError(expected(f"outputs of model {name}", wanted, "neither", remedy))
    word = "label" if classifier.kind == "multilabel" else "class"
    return tuple(f"{word} {number}" for number in range(found))


def _check_count(name: str, names: Sequence[str], found: int) -> None:
    if len(names) != found:
        wanted = f"{found} name{'s' if found > 1 else ''}, as many as it has outputs"
        remedy = "of two classes only class 1 counts" if found == 1 and len(names) == 2 else ""
        raise InputError(expected(f"outputs of model {name}", wanted, f"{len(names)}", remedy))
