"""Gradients of the losses that guide: class, L1, L2, perceptual. Losses are summed per image."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, logsigmoid

from fastdime.counterfactuals.problem import Features, Problem
from fastdime.scores import log_odds


def class_loss(logits: Float[Tensor, "b k"], target: Tensor, kind: str) -> Float[Tensor, " b"]:
    """Loss that falls as the target class gets likelier: minus log-odds, or minus log-probability.

    "probability" is the log-probability too, but computed from a probability that may have been rounded to
    0 or 1, where its gradient vanishes: what the medical program does with its one logit.
    """
    if kind == "probability" and logits.shape[1] == 1:
        return binary_cross_entropy(logits[:, 0].sigmoid(), target.to(logits), reduction="none")
    odds = log_odds(logits, target)
    return -odds if kind == "logit" else -logsigmoid(odds)


def class_gradient(
    problem: Problem, image: Float[Tensor, "b c h w"], time: Tensor, kind: str, *, wrt: Tensor | None = None
) -> Float[Tensor, "b c h w"]:
    """Gradient of the class loss at an image, or at `wrt`, from which the image was computed."""
    problem.count_gradient()
    with torch.enable_grad():
        if wrt is None:
            image = wrt = image.detach().requires_grad_()
        loss = class_loss(problem.classifier.logits(image, time), problem.target, kind).sum()
        return torch.autograd.grad(loss, wrt)[0]


def l1_gradient(image: Float[Tensor, "b c h w"], x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Gradient of the sum of absolute differences."""
    return (image - x).sign()


def l2_gradient(image: Float[Tensor, "b c h w"], x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Gradient of the sum over pixels of the length of the difference vector; 0 where it is 0."""
    difference = image - x
    length = difference.norm(dim=1, keepdim=True)
    return torch.where(length > 0, difference / length, 0.0)


def perceptual_gradient(
    features: Features, image: Float[Tensor, "b c h w"], wanted: Float[Tensor, "b ..."]
) -> Float[Tensor, "b c h w"]:
    """Gradient of the mean squared difference between the features of each image and the wanted ones."""
    with torch.enable_grad():
        leaf = image.detach().requires_grad_()
        loss = (features(leaf) - wanted).square().flatten(1).mean(1).sum()
        return torch.autograd.grad(loss, leaf)[0]
