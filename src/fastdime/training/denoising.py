"""The task of a denoiser: tell the noise from the image."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.diffusion.denoiser import Denoiser, Prediction
from fastdime.diffusion.losses import training_loss
from fastdime.diffusion.sampling import ddim
from fastdime.diffusion.schedule import linear, q_sample
from fastdime.errors import DataError, InputError, expected
from fastdime.training.emphasis import Emphasis
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures, data_hash
from fastdime.training.shapes import Shape, UNetShape
from fastdime.training.sheets import sheet

__all__ = ["Denoising", "UNetShape"]

VALIDATION_BATCH = 64
SMALL = UNetShape()
SHOWN = 8  # images of a row of the sheet
SHOWN_LEVELS = (0.2, 0.5)  # of the chain, at which they are noised
SHOWN_STEPS = 20  # of the samples
FOCUSED = 0.9  # share of the draws in the part of the chain that the focus is on


@dataclass(frozen=True)
class Denoising:
    """Learn to tell noise from image at all levels of a linear chain.

    Attributes:
        chain: number of levels.
        prediction: what the network answers: the noise, the image, "v" (noise and image, weighed by the
            level) or "edm" (likewise, with more of the image: for networks that see patches).
        focus: share of the chain, from its lowest level, that gets nine of ten draws. Counterfactuals begin
            in the middle of the chain, so what a network learns above is of little use to them.
        emphasis: how much the errors of each pixel count in training; all alike unless given.
    """

    train: Pictures
    valid: Pictures
    shape: Shape = SMALL
    flip: bool = False
    chain: int = 1000
    prediction: Prediction = "epsilon"
    focus: float = 1.0
    emphasis: Emphasis | None = None

    def __post_init__(self) -> None:
        """Refuse images that the network cannot halve often enough, and a focus on nothing."""
        height, width = self.train.levels.shape[2:]
        if height != width or height % self.shape.multiple:
            wanted = f"squares whose side is a multiple of {self.shape.multiple}"
            raise DataError(expected("images for the denoiser", wanted, f"{height} x {width}", "use --size"))
        if not 0 < self.focus <= 1:
            raise InputError(expected("--focus", "a share of the chain, above 0 and at most 1", self.focus))

    @property
    def images(self) -> int:
        """How many images there are to learn from."""
        return len(self.train)

    def describe(self) -> dict[str, Any]:
        """What is written down about the task."""
        told = {
            "kind": "denoiser",
            "images": len(self.train),
            "data": data_hash(self.train, self.valid),
            "size": list(self.train.levels.shape[1:]),
            **self.shape.describe(),
            "flip": self.flip,
        }
        # Only what is unusual, so that runs from before these fields go on.
        told |= {} if self.chain == 1000 else {"chain": self.chain}
        told |= {} if self.focus == 1 else {"focus": self.focus}
        told |= {} if self.emphasis is None else {"emphasis": self.emphasis.guide}
        return told if self.prediction == "epsilon" else told | {"prediction": self.prediction}

    def build(self) -> nn.Module:
        """Make the network."""
        channels, size, _ = self.train.levels.shape[1:]
        return self.shape.build(channels, size)

    def denoiser(self, model: nn.Module) -> Denoiser:
        """Put a network on the chain."""
        channels, size, _ = self.train.levels.shape[1:]
        chain, variance = linear(self.chain), self.shape.variance
        return Denoiser(model, chain, self.prediction, variance, size=size, channels=channels)

    def draw(self, rows: Tensor, random: torch.Generator) -> tuple[Tensor, ...]:
        """Return images, levels and noise of an update."""
        x = self.train.x(rows)
        if self.flip:
            turned = torch.rand(len(x), generator=random) < 0.5
            x = torch.where(turned.view(-1, 1, 1, 1), x.flip(3), x)
        return self._noised(x, random)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Squared error of the prediction, and what the variance costs if it is learned, for each image."""
        return self._loss(model, batch, None if self.emphasis is None else self.emphasis.weight)

    @torch.no_grad()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss on the validation images, always with the same noise."""
        random, losses = generator(0, 0), []
        for first in range(0, len(self.valid), VALIDATION_BATCH):
            rows = torch.arange(first, min(first + VALIDATION_BATCH, len(self.valid)))
            losses.append(self._loss(model, self._noised(self.valid.x(rows), random), None))
        return {"loss": float(torch.cat(losses).mean())}

    @torch.no_grad()
    def picture(self, model: nn.Module) -> Tensor:
        """Validation images, the same noised and denoised in one call at two levels, and samples."""
        device, random = next(model.parameters()).device, generator(0, 1)
        denoiser = self.denoiser(model)
        x = self.valid.x(torch.arange(min(SHOWN, len(self.valid)))).to(device)
        noise = torch.randn(x.shape, generator=random).to(device)
        rows = [x]
        for share in SHOWN_LEVELS:
            t = int(share * self.chain)
            x_t = q_sample(denoiser.schedule, x, t, noise)
            rows += [x_t, denoiser.posterior(x_t, t).x0_hat]
        short = denoiser.respaced(min(SHOWN_STEPS, self.chain))
        start = torch.randn((SHOWN, *x.shape[1:]), generator=random).to(device)
        return sheet([*rows, ddim(short, start, range(len(short.schedule) - 1, -1, -1))])

    def _loss(self, model: nn.Module, batch: tuple[Tensor, ...], emphasis: Tensor | None) -> Tensor:
        device = next(model.parameters()).device
        x, t, noise = (part.to(device) for part in batch)
        weight = None if emphasis is None else emphasis.to(device)
        return training_loss(self.denoiser(model), x, t, noise, emphasis=weight).total

    def _noised(self, x: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        t = torch.randint(self.chain, (len(x),), generator=random)
        if self.focus < 1:
            low = torch.rand(len(x), generator=random) < FOCUSED
            t = torch.where(low, (t * self.focus).long(), t)
        return x, t, torch.randn(x.shape, generator=random)
