"""Which class each image is pushed to."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastdime.errors import InputError, expected, unknown

Target = str | int | Tensor  # checked here, with a sentence, not by its shape


def choose_target(
    target: Target, before: Float[Tensor, "b k"], labels: Tensor | None = None
) -> Int[Tensor, " b"]:
    """Turn what the user asked for into one class an image.

    Args:
        target: "flip" (likeliest class but the predicted one: of two classes the other), "flip-label" (of two
            classes the one that is not the label), a class for all, or a class for each image.
        before: class probabilities of the images.
    """
    if isinstance(target, str):
        return _flipped(target, before, labels)
    wanted = target if isinstance(target, Tensor) else torch.full((len(before),), int(target))
    wanted = wanted.to(before.device, torch.int64)
    if wanted.shape != (len(before),):
        raise InputError(
            expected("target", f"one class for each of {len(before)} images", tuple(wanted.shape))
        )
    return _known(wanted, before.shape[1], "target")


def _flipped(target: str, before: Tensor, labels: Tensor | None) -> Tensor:
    if target == "flip":
        return before.argsort(dim=1, descending=True, stable=True)[:, 1]
    if target != "flip-label":
        raise InputError(unknown("target", target, ["flip", "flip-label", "a class number"]))
    if labels is None:
        raise InputError(expected("labels", "a label for each image, for target 'flip-label'", "none"))
    if before.shape[1] != 2:
        raise InputError(expected("target 'flip-label'", "two classes", before.shape[1], "name the class"))
    return 1 - _known(labels.to(before.device, torch.int64), 2, "label")


def _known(classes: Tensor, count: int, what: str) -> Tensor:
    if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < count:
        raise InputError(expected(what, f"classes 0 to {count - 1}", sorted(set(classes.tolist()))))
    return classes
