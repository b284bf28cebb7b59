"""Muon (Jordan et al. 2024) for the large weights of a network, AdamW for the rest.

torch has a Muon for matrices only, in bfloat16, which is slow on most CPUs; here a kernel of a convolution
is a matrix with a row for each output.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

# Of the learning rate: a step of Muon has length one in each direction, one of AdamW in each weight.
FACTOR = 16.0
MOMENTUM = 0.95
LEAST = 16  # rows and columns of a matrix that is worth it
NEWTON = (3.4445, -4.7750, 2.0315)  # coefficients that bring singular values near one in few rounds
ROUNDS = 5


class Muon(torch.optim.AdamW):
    """Turns the step of each large weight into the nearest orthogonal matrix."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, *, weight_decay: float) -> None:
        """Sort the weights."""
        weights = list(params)
        large = [weight for weight in weights if is_large(weight)]
        rest = [weight for weight in weights if not is_large(weight)]
        groups = [{"params": some, "large": kind} for some, kind in ((large, True), (rest, False)) if some]
        super().__init__(groups, lr, weight_decay=weight_decay)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Improve all weights once."""
        for group in self.param_groups:
            for weight in group["params"] if group["large"] else ():
                if weight.grad is not None:
                    self._move(weight, group["lr"], group["weight_decay"])
                    weight.grad = None  # AdamW passes over it
        return super().step(closure)

    def _move(self, weight: Tensor, rate: float, decay: float) -> None:
        assert weight.grad is not None
        state = self.state[weight]
        state.setdefault("step", torch.zeros(()))  # AdamW looks for it when a state is loaded
        mean = state.setdefault("mean", torch.zeros_like(weight))
        mean.lerp_(weight.grad, 1 - MOMENTUM)
        direction = orthogonal(weight.grad.lerp(mean, MOMENTUM).flatten(1))
        rows, columns = direction.shape
        size = FACTOR * rate * max(1, rows / columns) ** 0.5
        weight.mul_(1 - rate * decay).sub_(size * direction.view_as(weight))


def is_large(weight: Tensor) -> bool:
    """Tell whether a weight is a matrix of some size."""
    return weight.ndim > 1 and min(len(weight), weight[0].numel()) >= LEAST


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about the nearest matrix whose singular values are one, by Newton-Schulz rounds."""
    a, b, c = NEWTON
    tall = len(matrix) > matrix.shape[1]
    x: Tensor = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-12)
    for _ in range(ROUNDS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x
