"""What the parts hand to each other."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

Images = Float[Tensor, "b c h w"]
Mask = Bool[Tensor, "b 1 h w"]  # True = may change
Progress = Callable[[int, int], None]  # (done, all)


@runtime_checkable
class Classifier(Protocol):
    """Anything that scores images: one log-odds an image (b, 1), or one logit a class (b, k)."""

    def logits(self, x: Images, time: Int[Tensor, " b"]) -> Float[Tensor, "b k"]:
        """Score images in [-1, 1]; `time` is the network time of their noise level (0 = clean)."""


@dataclass(frozen=True)
class Posterior:
    """What a denoiser says about x_t: the next, less noisy state and the clean image."""

    mean: Images
    variance: Tensor
    log_variance: Tensor
    x0_hat: Images


@dataclass(frozen=True)
class Meter:
    """How many network calls each image of a batch took, by its place in the batch."""

    denoiser: Counter[int] = field(default_factory=Counter)
    gradient: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Moment:
    """One recorded step of a guided chain."""

    t: int
    x_t: Images
    x0_hat: Images
    mask: Mask


@dataclass(frozen=True)
class Counterfactuals:
    """The result for a batch of images.

    Attributes:
        x_cf: the counterfactuals, exactly as they are saved.
        mask: where the method could change the image; elsewhere x_cf equals the input bit for bit.
        predicted: the class that the classifier gives the input.
        target: the class wanted for each image.
        p_before, p_after: probability of the target class on the input and on x_cf.
        valid: whether the classifier puts x_cf into the target class.
        scale: the guidance strength of the attempt that was kept.
        denoiser_calls, gradient_calls: what each image cost.
        diverged: every attempt ran away; x_cf is the input. Lower the strength or the distance weights.
        trajectory: the recorded steps of the attempt that was kept last, if asked for.
    """

    x_cf: Images
    mask: Mask
    predicted: Int[Tensor, " b"]
    target: Int[Tensor, " b"]
    p_before: Float[Tensor, " b"]
    p_after: Float[Tensor, " b"]
    valid: Bool[Tensor, " b"]
    scale: Float[Tensor, " b"]
    denoiser_calls: Int[Tensor, " b"]
    gradient_calls: Int[Tensor, " b"]
    diverged: Bool[Tensor, " b"]
    trajectory: tuple[Moment, ...] = field(default=())
