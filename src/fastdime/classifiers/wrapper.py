"""A classifier as the rest of the library sees it: images in [-1, 1] go in, log-odds or logits come out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import interpolate

from fastdime.errors import InputError, expected

Kind = Literal["binary", "multilabel", "multiclass"]
Output = Literal["logit", "probability"]

LUMINANCE = (0.299, 0.587, 0.114)  # ITU-R 601, the weights with which image readers turn colour into gray
SMALLEST = 1e-6  # a probability nearer to 0 or 1 than this becomes this: its logit would not be finite
SUM_TOLERANCE = 1e-3  # probabilities of a half-precision softmax do not sum to 1 exactly


@dataclass(frozen=True)
class ImageClassifier:
    """A network together with what it expects and what its output means.

    Attributes:
        module: called with images, or with (images, time); gives a tensor or an object with `.logits`.
        kind: "binary" (one output), "multilabel" (one output a label, of which `column` is explained) or
            "multiclass" (a softmax; a binary head with two outputs is one of two classes).
        column: the label that is explained, counted from 0; only `outputs` does without.
        size: height and width that images are resized to; None = as they come.
        channels: 1 (colour becomes luminance) or 3 (gray is repeated); None = as they come.
        low, high: the range of pixel values that the network was trained on.
        mean, std: for each channel, taken off and divided by after the range.
        timed: whether the network is told the noise level of the images.
        output: what comes out of the network.
    """

    module: Callable[..., Any]
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

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if not callable(self.module):
            raise InputError(expected("classifier", "a network or a function", type(self.module).__name__))
        if self.column is not None and (self.kind != "multilabel" or self.column < 0):
            raise InputError(self._column_sentence())
        if self.channels not in (None, 1, 3):
            raise InputError(expected("channels of the classifier", "1, 3 or none", self.channels))
        if self.size is not None and self.size < 1:
            raise InputError(expected("size of the classifier", "a number of pixels >= 1", self.size))
        if not self.low < self.high:
            raise InputError(expected("range of the classifier", "low < high", f"{self.low} and {self.high}"))
        self._check_statistics()

    def _check_statistics(self) -> None:
        if self.mean is None and self.std is None:
            return
        lengths = {len(self.mean or ()), len(self.std or ())}
        wanted = {self.channels} if self.channels else {1, 3}
        if len(lengths) > 1 or not lengths <= wanted or min(self.std or (0.0,)) <= 0:
            raise InputError(
                expected(
                    "mean and std of the classifier",
                    "both, one number a channel, every std > 0",
                    f"{self.mean} and {self.std} for {self.channels or '1 or 3'} channel(s)",
                )
            )

    def logits(self, x: Float[Tensor, "b c h w"], time: Int[Tensor, " b"]) -> Float[Tensor, "b k"]:
        """Score images in [-1, 1]: (b, 1) log-odds, or (b, k) logits of a multi-class network.

        A network in training mode is used in evaluation mode and left as it was.
        """
        self.check_column()
        out = self._answer(x, time)
        return self._meaning(out if self.column is None else out[:, self.column : self.column + 1])

    def outputs(self, x: Float[Tensor, "b c h w"], time: Int[Tensor, " b"]) -> Float[Tensor, "b k"]:
        """Score images as `logits` does, but with all outputs of a multi-label network, each as log-odds."""
        return self._meaning(self._answer(x, time))

    def check_column(self) -> None:
        """Refuse a multi-label network without a column, which leaves open what `logits` are asked of."""
        if self.kind == "multilabel" and self.column is None:
            raise InputError(self._column_sentence())

    def _column_sentence(self) -> str:
        return expected(
            "column of the classifier",
            "a number from 0 for kind 'multilabel' and none for other kinds",
            f"{self.column} for kind {self.kind!r}",
            "say which output is to be explained",
        )

    def prepare(self, x: Float[Tensor, "b c h w"]) -> Tensor:
        """Turn images in [-1, 1] into what the network was trained on; differentiable."""
        if x.ndim != 4:
            raise InputError(expected("images", "shape (images, channels, height, width)", tuple(x.shape)))
        x = self._with_channels(x)
        if self.size is not None and x.shape[2:] != (self.size, self.size):
            x = interpolate(x, (self.size, self.size), mode="bilinear", align_corners=False, antialias=True)
        if (self.low, self.high) != (-1.0, 1.0):
            x = (x + 1) * ((self.high - self.low) / 2) + self.low
        if self.mean is not None and self.std is not None:
            _check_channels(x, len(self.mean))
            x = (x - x.new_tensor(self.mean).view(1, -1, 1, 1)) / x.new_tensor(self.std).view(1, -1, 1, 1)
        return x

    def _with_channels(self, x: Tensor) -> Tensor:
        if self.channels is None or x.shape[1] == self.channels:
            return x
        if (x.shape[1], self.channels) == (1, 3):
            return x.repeat(1, 3, 1, 1)
        _check_channels(x, 3)
        return (x * x.new_tensor(LUMINANCE).view(1, 3, 1, 1)).sum(1, keepdim=True)

    def _answer(self, x: Tensor, time: Tensor) -> Tensor:
        """Return what comes out of the network, one column an output."""
        ready = self.prepare(x)
        with _evaluating(self.module):
            out = self._call(ready, time)
        return self._columns(getattr(out, "logits", out), len(x))

    def _call(self, x: Tensor, time: Tensor) -> Any:
        try:
            return self.module(x, time) if self.timed else self.module(x)
        except torch.OutOfMemoryError:
            raise  # not the images' fault: the caller may try a smaller batch
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            lines = str(error).strip().splitlines() or ["no message"]
            # TorchScript puts its own stack first and the reason last.
            reason = lines[-1].removeprefix("RuntimeError: ") if "TorchScript" in lines[0] else lines[0]
            raise InputError(
                expected(
                    "classifier",
                    f"a network that takes images of shape {tuple(x.shape)}",
                    f"{type(error).__name__}: {reason}",
                    "check its channels, size and timed settings",
                )
            ) from error

    def _columns(self, out: object, images: int) -> Tensor:
        if not isinstance(out, Tensor) or not out.is_floating_point():
            found = out.dtype if isinstance(out, Tensor) else type(out).__name__
            raise InputError(expected("output of the classifier", "a tensor of floats", found))
        if self.kind == "binary" and out.shape == (images,):
            out = out[:, None]
        outputs = out.shape[1] if out.ndim == 2 else 0
        enough = {
            "binary": outputs == 1,
            "multilabel": outputs > (self.column or 0),
            "multiclass": outputs >= 2,
        }
        if out.ndim != 2 or len(out) != images or not enough[self.kind]:
            raise InputError(self._shape_sentence(out, images))
        return out

    def _shape_sentence(self, out: Tensor, images: int) -> str:
        labels = "1 or more" if self.column is None else f"more than column {self.column}"
        shape = {
            "binary": f"({images}, 1)",
            "multilabel": f"({images}, {labels})",
            "multiclass": f"({images}, 2 or more)",
        }
        return expected(
            "output of the classifier",
            f"shape {shape[self.kind]} for kind {self.kind!r}",
            tuple(out.shape),
            "set kind to binary, multilabel or multiclass",
        )

    def _meaning(self, out: Tensor) -> Tensor:
        _check_finite(out)
        if self.output == "logit":
            return out
        _check_probabilities(out, self.kind)
        if self.kind == "multiclass":
            return out.clamp_min(SMALLEST).log()  # softmax of the logarithms gives the probabilities back
        return out.logit(eps=SMALLEST)


@contextmanager
def _evaluating(module: object) -> Iterator[None]:
    """Batch norm and dropout must not depend on the batch, whatever mode the user left the network in."""
    parts = module.modules() if isinstance(module, nn.Module) else ()
    training = [part for part in parts if getattr(part, "training", False)]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _check_channels(x: Tensor, channels: int) -> None:
    if x.shape[1] != channels:
        raise InputError(
            expected("images for the classifier", f"{channels} channel(s)", x.shape[1], "set its channels")
        )


def _check_finite(out: Tensor) -> None:
    if not out.isfinite().all():
        bad = (~out.isfinite()).any(1).nonzero().flatten().tolist()
        places = ", ".join(str(place) for place in bad[:5])
        raise InputError(
            expected(
                "output of the classifier",
                "finite numbers",
                f"NaN or infinity for image(s) {places} of the batch",
                "check the weights and the images",
            )
        )


def _check_probabilities(out: Tensor, kind: Kind) -> None:
    what, remedy = "output of the classifier", "set output to 'logit'"
    outside = out[(out < 0) | (out > 1)]
    if len(outside):
        raise InputError(expected(what, "probabilities in [0, 1]", f"{outside[0].item():g}", remedy))
    totals = out.sum(1)
    wrong = totals[(totals - 1).abs() > SUM_TOLERANCE]
    if kind == "multiclass" and len(wrong):
        raise InputError(expected(what, "probabilities that sum to 1", f"{wrong[0].item():g}", remedy))
