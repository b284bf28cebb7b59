"""What the parts of the guided loop may see of one step."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from fastdime.types import Posterior


@dataclass(frozen=True)
class Masks:
    """`state` limits the noisy state; `clean` limits the clean image that is carried on."""

    state: Bool[Tensor, "b k h w"]
    clean: Bool[Tensor, "b k h w"]


@dataclass(frozen=True)
class Step:
    """One step as it begins.

    Attributes:
        x: the image to explain.
        x_t: the noisy state that enters the step.
        x0_prev: the clean estimate of the step before (x itself in the first step).
        t: the level, 0 = least noise.
        index: the number of the step, from 0.
        time: what a timed classifier is told, one number an image.
        posterior: what the denoiser says about x_t.
        carried: the masks of the step before.
    """

    x: Tensor
    x_t: Tensor
    x0_prev: Tensor
    t: int
    index: int
    time: Tensor
    posterior: Posterior
    carried: Masks | None


@dataclass(frozen=True)
class Estimate:
    """Clean images of a step: `judged` by the classifier, and `kept` for masks, distance and carrying on."""

    judged: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Event:
    """A finished step, for whoever watches.

    Attributes:
        index, t: number of the step, and its level (of ACE's attack: the iteration).
        x_t, x0_hat: the state that entered and what the denoiser made of it.
        mask: where the state may change, None = everywhere.
        judged: the image the class gradient was taken on.
        class_gradient: that gradient, None in a step without guidance.
        inner_mask: the mask of the clean image.
        x_next, clean: the state and the clean estimate that leave the step.
    """

    index: int
    t: int
    x_t: Tensor
    x0_hat: Tensor
    mask: Tensor | None
    judged: Tensor
    class_gradient: Tensor | None
    inner_mask: Tensor | None
    x_next: Tensor
    clean: Tensor


Watch = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Watch nothing."""
