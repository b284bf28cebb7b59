"""What the stages of turbo share: the images, one noise map each, and how a guide pushes an image."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastdime.counterfactuals.masks import TINY, dilate, strongest, without_holes
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import TurboSettings
from fastdime.counterfactuals.smoothing import blurred, grain
from fastdime.diffusion import schedule as sch
from fastdime.scores import log_odds

SOFT = 0.01  # width of the edges of masks, and of the blur of what they are made from, as a share of the side
WEAK = (0.03, 0.08)  # a change below the first share of the strongest one is left out, above the second kept


@dataclass(frozen=True)
class Push:
    """How a guide moves an image: steps against its gradient until it is sure enough.

    Attributes:
        times: steps.
        size: of one step, on the scale of the image, which spans 2.
        margin: log-odds of the target at which steps get smaller; from there on they end within 1.
        peak: whether the size is that of the largest change of a pixel, or else the root mean square.
    """

    times: int
    size: float
    margin: float
    peak: bool = False


@dataclass(frozen=True)
class Canvas:
    """A batch in the works."""

    problem: Problem
    settings: TurboSettings
    scale: float
    noise: Float[Tensor, "b c h w"]

    @property
    def x(self) -> Float[Tensor, "b c h w"]:
        """The images to explain."""
        return self.problem.x

    def rows(self, index: Tensor) -> "Canvas":
        """Return the same for some images."""
        return replace(self, problem=self.problem.rows(index), noise=self.noise[index])

    def of(self, image: Float[Tensor, "b c h w"]) -> "Canvas":
        """Return the same with another image in the place of each."""
        return replace(self, problem=replace(self.problem, x=image))

    def level(self, share: float) -> int:
        """Return the level of the chain at which this share of the image's variance is left."""
        return self.problem.denoiser.schedule.nearest(share)

    def noised(self, image: Tensor, level: int, noise: Tensor | None = None) -> Float[Tensor, "b c h w"]:
        """Noise an image, with the map of the canvas unless another is given."""
        noise = self.noise if noise is None else noise
        return sch.q_sample(self.problem.denoiser.schedule, image, level, noise)

    def denoised(self, x_t: Float[Tensor, "b c h w"], level: int) -> Float[Tensor, "b c h w"]:
        """Call the denoiser once; returns the clean image."""
        return self.problem.counted.posterior(x_t, level).x0_hat

    def noise_in(self, x_t: Tensor, level: int, clean: Tensor) -> Float[Tensor, "b c h w"]:
        """Return the noise in a state whose clean image is known."""
        return sch.noise_from_clean(self.problem.denoiser.schedule, x_t, level, clean)

    def odds(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
        """Return the log-odds that the guide gives the target."""
        logits = self.problem.classifier.logits(image, torch.zeros_like(self.problem.target))
        return log_odds(logits, self.problem.target)

    def pushed(
        self, image: Float[Tensor, "b c h w"], push: Push, weight: Tensor | None = None
    ) -> Float[Tensor, "b c h w"]:
        """Move each image towards its target until the guide is sure enough, only where the weight is."""
        rows = torch.arange(len(image), device=image.device)
        for _ in range(push.times):
            share, gradient = self.rows(rows).needed(image[rows], push.margin)
            needy = share > 0
            if not bool(needy.any()):
                break
            rows = rows[needy]
            step = self._step(gradient[needy], push, None if weight is None else weight[rows])
            moved = (image[rows] - share[needy].view(-1, 1, 1, 1) * step).clamp(-1, 1)
            image = image.index_copy(0, rows, moved)
        return image

    def needed(
        self, image: Float[Tensor, "b c h w"], margin: float
    ) -> tuple[Float[Tensor, " b"], Float[Tensor, "b c h w"]]:
        """Return how much of a step each image needs, and the gradient of minus its log-odds."""
        with torch.enable_grad():
            leaf = image.detach().requires_grad_()
            odds = self.odds(leaf)
            share = (margin - odds.detach()).clamp(0, 1) * self.scale
            needy = (share > 0).nonzero()[:, 0]
            if not len(needy):
                return share, torch.zeros_like(image)
            self.problem.rows(needy).count_gradient()
            return share, torch.autograd.grad(-odds[needy].sum(), leaf)[0]

    def _step(self, gradient: Tensor, push: Push, weight: Tensor | None) -> Float[Tensor, "b c h w"]:
        """Return one step of the size wanted, along the smoothed gradient."""
        gradient = blurred(gradient, self.settings.smoothing)
        if weight is not None:
            gradient = gradient * weight
        largest = gradient.abs().amax((1, 2, 3), keepdim=True)
        unit = torch.where(largest > 0, gradient / largest, 0.0)
        if push.peak:
            return push.size * unit
        mean = unit.square().mean((1, 2, 3), keepdim=True).sqrt()
        return push.size * torch.where(mean > 0, unit / mean, 0.0)

    def mask(
        self, strength: Tensor, sure: float, faint: float, area: float, reach: float
    ) -> Bool[Tensor, "b 1 h w"]:
        """Mark where something is strong, without holes and somewhat wider; nowhere if it is nowhere."""
        found = without_holes(strongest(strength, sure, faint, area))
        side = 2 * max(1, round(reach * min(strength.shape[2:]))) + 1
        some = strength.amax((1, 2, 3), keepdim=True) > TINY
        return (dilate(found.to(strength), side) > 0) & some & self.problem.allowed()

    def soft(self, mask: Bool[Tensor, "b 1 h w"]) -> Float[Tensor, "b 1 h w"]:
        """Give a mask soft edges; 0 wherever changes are not allowed."""
        return blurred(mask.to(self.x), SOFT) * self.problem.allowed()

    def redrawn(
        self, start: Float[Tensor, "b c h w"], weight: Float[Tensor, "b 1 h w"], levels: Sequence[int]
    ) -> Float[Tensor, "b c h w"]:
        """Redraw where the weight is not 0 with a short chain without guidance, with x around it (DDIM)."""
        x_t = self.noised(start, levels[0])
        for level, below in zip(levels, [*levels[1:], None], strict=True):
            x0_hat = self.denoised(x_t, level)
            clean = self.x + weight * (x0_hat - self.x)
            if below is not None:
                rest = self.noise_in(x_t, level, x0_hat)
                x_t = self.noised(clean, below, self.noise + weight * (rest - self.noise))
        return clean

    def transplanted(
        self, drawn: Tensor, null: Tensor, weight: Float[Tensor, "b 1 h w"]
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b 1 h w"]]:
        """Put what was drawn into the image, with the grain of the image; weak changes are left out.

        Returns the image and how much of what was drawn it has in each place.
        """
        change = blurred(((drawn - null) * weight).abs().sum(1, keepdim=True), SOFT)
        share = change / change.amax((1, 2, 3), keepdim=True).clamp(min=TINY)
        weight = weight * ((share - WEAK[0]) / (WEAK[1] - WEAK[0])).clamp(0, 1)
        image = self.x + weight * (drawn + grain(self.x, null) - self.x)
        return image.clamp(-1, 1), weight
