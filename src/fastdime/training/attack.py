"""Small changes of images made against a network, so that it learns to hold against them.

The gradient of such a network points at what a person would change, not at a texture that only it sees
(Santurkar et al. 2019), so a guide of this kind steers well where little noise hides its mistakes.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

STEPS, STEP = 2, 0.7  # number of steps, and the size of one as a share of the whole change


def attacked(answer: Callable[[Tensor], Tensor], x: Tensor, labels: Tensor, largest: float) -> Tensor:
    """Change each image against its label, the first of the batch least and the last most.

    The mild ones keep a network that has yet to learn from learning nothing.

    Args:
        answer: the logit of each image.
        largest: root mean square of the change of the last image.
    """
    sizes = largest * torch.arange(1, len(x) + 1, device=x.device).view(-1, 1, 1, 1) / len(x)
    wanted, change = labels.to(x), torch.zeros_like(x)
    for _ in range(STEPS):
        change.requires_grad_()
        with torch.enable_grad():
            loss = binary_cross_entropy_with_logits(answer(x + change).float(), wanted, reduction="sum")
            [gradient] = torch.autograd.grad(loss, change)
        change = change.detach() + STEP * sizes * gradient / _size(gradient).clamp(min=1e-20)
        change = change * (sizes / _size(change).clamp(min=1e-20)).clamp(max=1)
    return x + change


def _size(change: Tensor) -> Tensor:
    return change.square().mean((1, 2, 3), keepdim=True).sqrt()
