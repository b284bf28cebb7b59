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
    if isinstance(target, int) and not isinstance(target, bool):
        target = torch.full((len(before),), target)
    return _known(target, before, "target")


def _flipped(target: str, before: Tensor, labels: Tensor | None) -> Tensor:
    if target == "flip":
        return before.argsort(dim=1, descending=True, stable=True)[:, 1]
    if target != "flip-label":
        raise InputError(unknown("target", target, ["flip", "flip-label", "a class number"]))
    if labels is None:
        raise InputError(expected("labels", "a label for each image, for target 'flip-label'", "none"))
    if before.shape[1] != 2:
        raise InputError(expected("target 'flip-label'", "two classes", before.shape[1], "name the class"))
    return 1 - _known(labels, before, "labels")


def _known(classes: object, before: Tensor, what: str) -> Tensor:
    """Check that there is one known class for each image."""
    images, count = before.shape
    if not isinstance(classes, Tensor) or classes.shape != (images,) or classes.is_floating_point():
        got = f"{classes.dtype} {tuple(classes.shape)}" if isinstance(classes, Tensor) else repr(classes)
        raise InputError(expected(what, f"one class for each of {images} images, as whole numbers", got))
    if not 0 <= int(classes.min()) <= int(classes.max()) < count:
        raise InputError(expected(what, f"classes 0 to {count - 1}", sorted(set(classes.tolist()))))
    return classes.to(before.device, torch.int64)
