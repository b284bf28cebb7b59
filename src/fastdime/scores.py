"""What the outputs of a classifier mean.

One column is the log-odds of class 1 against class 0; k >= 2 columns are the logits of a softmax.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastdime.errors import InputError, expected


def class_count(logits: Float[Tensor, "b k"]) -> int:
    """Return the number of classes that the logits tell apart.

    >>> class_count(torch.zeros(4, 1)), class_count(torch.zeros(4, 3))
    (2, 3)
    """
    _check(logits)
    return max(2, logits.shape[1])


def log_odds(logits: Float[Tensor, "b k"], target: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
    """Return log p / (1 - p) of the target class of each image.

    Args:
        target: numbers from 0 to `class_count(logits) - 1`; the values are for the caller to check, because
            looking at them here would stop a GPU at every step.

    >>> log_odds(torch.tensor([[2.0], [2.0]]), torch.tensor([1, 0])).tolist()
    [2.0, -2.0]
    """
    _check(logits, target)
    if logits.shape[1] == 1:
        return logits[:, 0] * (2 * target - 1)
    column = target[:, None]
    others = logits.scatter(1, column, float("-inf"))
    return logits.gather(1, column)[:, 0] - others.logsumexp(1)


def probabilities(logits: Float[Tensor, "b k"]) -> Float[Tensor, "b classes"]:
    """Return the probability of every class; one log-odds becomes two columns.

    >>> probabilities(torch.zeros(1, 1)).tolist()
    [[0.5, 0.5]]
    """
    _check(logits)
    if logits.shape[1] == 1:
        return torch.cat([-logits, logits], dim=1).sigmoid()
    return logits.softmax(1)


def predicted_class(logits: Float[Tensor, "b k"]) -> Int[Tensor, " b"]:
    """Return the most probable class; at even odds of two classes it is class 0.

    >>> predicted_class(torch.tensor([[0.3], [0.0], [-1.0]])).tolist()
    [1, 0, 0]
    """
    _check(logits)
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).long()
    return logits.argmax(1)


def _check(logits: Tensor, target: Tensor | None = None) -> None:
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise InputError(expected("logits", "shape (images, classes)", tuple(logits.shape)))
    if target is None:
        return
    if target.shape != logits.shape[:1] or target.is_floating_point():
        raise InputError(
            expected(
                "target",
                f"whole numbers of shape {tuple(logits.shape[:1])}, one an image",
                f"{target.dtype} of shape {tuple(target.shape)}",
            )
        )
