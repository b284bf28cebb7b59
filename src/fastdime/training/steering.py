"""The task of a guide that is trained to steer one denoiser: its gradient is to mend what that gets wrong.

Of a noisy image a denoiser answers with the mean of all clean images that it may come from. Who knows the
label can say more: the mean moves along the gradient of the label's log-probability. So a good gradient
explains a part of the denoiser's error, and a guide can be trained for just that, at every pixel, where the
label itself says one bit an image (denoising likelihood score matching, Chao et al. 2022: there on noisy
images, here on denoised ones, which are what a guide is asked about).

With little noise the label is beyond doubt, and the denoiser's error says nothing about it. There the
gradient learns to follow that of the same image at middle noise.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from fastdime.bundles import DENOISER, part_of
from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.schedule import q_sample
from fastdime.errors import FastdimeError, InputError, expected
from fastdime.training.classifying import Classifying
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures
from fastdime.weights import weights_hash

NOISE = (0.9, 0.03)  # alpha-bar of the least and of the most noise that is denoised
WEIGHT = 240.0  # of the explained share of the denoiser's squared error, beside cross entropies
CLEAN = 0.5  # weight of the cross entropy on images that have no noise to speak of
MIDDLE = (0.4, 0.13)  # alpha-bar of noise at which the label is in doubt, so that the gradient is known
LITTLE = 0.53  # alpha-bar of the most noise of images whose gradient follows that
FOLLOWED = 2  # noisy images whose mean gradient is followed
AS_IT_IS = 0.3  # share of the images with little noise that have none at all
LARGEST = 10.0  # factor of the gradient; near the start of a training it may be anything
VALIDATED, VALIDATION_BATCH = 256, 64  # images whose denoising is scored


@dataclass(frozen=True)
class Steered:
    """A denoiser with a network, to be steered."""

    denoiser: Denoiser
    network: nn.Module

    def describe(self) -> str:
        """Return the hash of the denoiser's weights."""
        return weights_hash(self.network)

    def levels(self, count: int, random: torch.Generator, least: float, most: float) -> Tensor:
        """Draw levels between the two at which such shares of the image's variance are left."""
        first, last = (self.denoiser.schedule.nearest(share) for share in (least, most))
        return torch.randint(first, last + 1, (count,), generator=random)

    @torch.no_grad()
    def denoised(self, x: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        """Noise images, and return what the denoiser makes of them."""
        self.network.to(x.device)
        x_t = q_sample(self.denoiser.schedule, x, t, noise)
        return self.denoiser.posterior(x_t, t).x0_hat


def open_steered(source: str, pictures: Pictures) -> Steered:
    """Open a denoiser, that of a bundle, or that of a training, for such images."""
    try:
        denoiser = load_denoiser(part_of(source, DENOISER))
    except FastdimeError as error:
        raise InputError(f"--steer: {error}") from error
    channels, *sides = pictures.levels.shape[1:]
    for what, wanted, got in (
        ("channels", denoiser.channels, channels),
        *(("pixels a side", denoiser.size, side) for side in sides),
    ):
        if wanted not in (None, got):
            remedy = "use --size or --channels"
            raise InputError(expected(f"images for --steer {source}", f"{wanted} {what}", got, remedy))
    if not isinstance(denoiser.network, nn.Module):
        raise InputError(expected(f"--steer {source}", "a denoiser with weights", "a function"))
    denoiser.network.eval().requires_grad_(False)
    return Steered(denoiser, denoiser.network)


@dataclass(frozen=True)
class Steering(Classifying):
    """Learn one yes-or-no label from images, and to steer a denoiser by it."""

    steered: Steered | None = None

    def describe(self) -> dict[str, Any]:
        """What is written down about the task."""
        return super().describe() | {"steered": self._steered.describe()}

    def draw(self, rows: Tensor, random: torch.Generator) -> tuple[Tensor, ...]:
        """Return what a classifier learns from, and images, levels and noise for the denoiser."""
        x = self.train.x(rows)
        return *super().draw(rows, random), x, *self._noise(x, random), *self._near(x, random)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Cross entropies of changed and of denoised images, less what the gradient explains and follows."""
        device = next(model.parameters()).device
        changed, labels, times, x, t, noise, *near = (part.to(device) for part in batch)
        plain = CLEAN * super().loss(model, changed, labels, times)
        steering = self._steering(model, labels, times, x, t, noise)
        half = (len(x) + 1) // 2  # following takes long; the rows of an update are in no order
        aside = self._aside(model, times[:half], x[:half], *(part[:half] for part in near))
        return plain + steering + aside.mean()

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores of the classifier, and the share of the denoiser's error that its gradient explains."""
        scores, random, steering = super().validate(model), generator(0, 0), []
        device = next(model.parameters()).device
        for rows in torch.split(torch.arange(min(VALIDATED, len(self.valid))), VALIDATION_BATCH):
            x, times = self.valid.x(rows).to(device), torch.zeros_like(rows, device=device)
            t, noise, *near = (part.to(device) for part in (*self._noise(x, random), *self._near(x, random)))
            loss = self._steering(model, self.valid.labels[rows].to(device), times, x, t, noise)
            steering.append((loss + self._aside(model, times, x, *near)).detach())
        return scores | {"loss": CLEAN * scores["loss"] + float(torch.cat(steering).mean())}

    @property
    def _steered(self) -> Steered:
        assert self.steered is not None
        return self.steered

    def _noise(self, x: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw level and noise of each image."""
        return self._steered.levels(len(x), random, *NOISE), torch.randn(x.shape, generator=random)

    def _near(self, x: Tensor, random: torch.Generator) -> tuple[Tensor, ...]:
        """Draw which images are noised a little, and levels and noise of that and of what they follow."""
        noisy = torch.rand(len(x), generator=random) > AS_IT_IS
        levels = [self._steered.levels(len(x), random, *ends) for ends in ((1.0, LITTLE), MIDDLE)]
        return noisy, *levels, *(torch.randn(x.shape, generator=random) for _ in range(1 + FOLLOWED))

    def _steering(
        self, model: nn.Module, labels: Tensor, times: Tensor, x: Tensor, t: Tensor, noise: Tensor
    ) -> Tensor:
        """Cross entropy of denoised images, less the share of their error that the gradient explains."""
        denoised = self._steered.denoised(x, t, noise)
        error = (x - denoised).flatten(1)
        logits, gradient = self._gradient(model, denoised, times, create_graph=True)
        missing = (labels.to(logits) - logits.detach().sigmoid()).view(-1, 1)
        explained = explained_share(error, missing * gradient)
        return self._entropy(logits, labels) - WEIGHT * explained

    def _aside(self, model: nn.Module, times: Tensor, x: Tensor, *near: Tensor) -> Tensor:
        """Return how gradients with little noise turn from those at middle noise: 0 = not, 2 = around."""
        noisy, little, middle, noise, *noises = near
        plain = getattr(model, "module", model)  # what is followed learns nothing, in any process
        followed = [
            normalize(self._gradient(plain, self._steered.denoised(x, middle, other), times)[1])
            for other in noises
        ]
        seen = torch.where(noisy.view(-1, 1, 1, 1), self._steered.denoised(x, little, noise), x)
        _, gradient = self._gradient(model, seen, times, create_graph=True)
        return 1 - cosine_similarity(gradient, torch.stack(followed).sum(0))

    def _gradient(
        self, model: nn.Module, x: Tensor, times: Tensor, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return logits and their gradients, one row an image."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            logits = self._logits(model, x, times)
            [gradient] = torch.autograd.grad(logits.sum(), x, create_graph=create_graph)
            return logits if create_graph else logits.detach(), gradient.flatten(1)


def explained_share(error: Tensor, gradient: Tensor) -> Tensor:
    """Return the share of the mean squared error that the gradient explains, for each image.

    Times one factor for all images, the best one. It counts as a constant: the loss has the same slope so.

    >>> explained_share(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([1., 1.])
    """
    along, square = (error * gradient).sum(1), gradient.square().sum(1)
    factor = (along.sum() / square.sum().clamp(min=1e-20)).detach().clamp(0, LARGEST)
    return (2 * factor * along - factor**2 * square) / error.square().sum(1).mean().clamp(min=1e-20)
