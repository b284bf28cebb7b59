"""Two classes of points in the plane whose denoiser, classifier and guiding gradient have a formula.

A class is a mixture of round Gaussians, and stays one when noise is added: only centres and variances change.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.schedule import Schedule, at, linear

Points = Float[Tensor, "n 2"]
CLEAN = torch.ones((), dtype=torch.float64)  # alpha-bar without noise


@dataclass(frozen=True)
class Plane:
    """The mixture; all parts are equally likely.

    Formulas take points noised to a level, and its alpha-bar: one number, or one a point as (n, 1).

    Attributes:
        centres, spreads: mean and standard deviation of each part.
        wanted: whether a part is of class A, the class that points are brought to.
    """

    centres: Float[Tensor, "k 2"]
    spreads: Float[Tensor, " k"]
    wanted: Bool[Tensor, " k"]

    def log_densities(self, x_t: Points, alpha_bar: Tensor = CLEAN) -> Float[Tensor, "n k"]:
        """Logarithm of the density of each part, times its share of the mixture."""
        variance = self._variance(alpha_bar)
        squared = self._offset(x_t, alpha_bar).square().sum(2)
        shares = 2 * torch.pi * len(self.centres) * variance
        return -squared / (2 * variance) - shares.log()

    def expected(self, x_t: Points, alpha_bar: Tensor) -> Points:
        """The best denoiser: the mean of the clean points behind x_t."""
        gain = alpha_bar.sqrt() * self.spreads**2 / self._variance(alpha_bar)
        of_parts = self.centres + gain[..., None] * self._offset(x_t, alpha_bar)
        return (self.log_densities(x_t, alpha_bar).softmax(1)[..., None] * of_parts).sum(1)

    def log_odds(self, x_t: Points, alpha_bar: Tensor = CLEAN) -> Float[Tensor, " n"]:
        """The best classifier: log-odds of class A."""
        scores = self.log_densities(x_t, alpha_bar)
        return scores[:, self.wanted].logsumexp(1) - scores[:, ~self.wanted].logsumexp(1)

    def pull(self, x_t: Points, alpha_bar: Tensor) -> Points:
        """Gradient of log p(class A | x_t), which the methods approximate: with it, chains end in class A."""
        doubt = (-self.log_odds(x_t, alpha_bar)).sigmoid()[:, None]
        return doubt * (self._slope(x_t, alpha_bar, self.wanted) - self._slope(x_t, alpha_bar, ~self.wanted))

    def distance(self, points: Points) -> Float[Tensor, " n"]:
        """Distance to the nearest centre of class A."""
        return torch.cdist(points, self.centres[self.wanted]).amin(1)

    def _slope(self, x_t: Points, alpha_bar: Tensor, parts: Bool[Tensor, " k"]) -> Points:
        """Gradient of the log-density of some parts together."""
        of_parts = -self._offset(x_t, alpha_bar) / self._variance(alpha_bar)[..., None]
        share = self.log_densities(x_t, alpha_bar)[:, parts].softmax(1)
        return (share[..., None] * of_parts[:, parts]).sum(1)

    def _offset(self, x_t: Points, alpha_bar: Tensor) -> Float[Tensor, "n k 2"]:
        return x_t[:, None] - alpha_bar.sqrt()[..., None] * self.centres

    def _variance(self, alpha_bar: Tensor) -> Tensor:
        return alpha_bar * self.spreads**2 + 1 - alpha_bar


def example() -> Plane:
    """Return the plane of the figure: class B on the left, class A on the right, two parts each."""
    return Plane(
        torch.tensor([[-0.6, -0.5], [-0.5, 0.4], [0.5, -0.2], [0.45, 0.55]], dtype=torch.float64),
        torch.tensor([0.2, 0.22, 0.2, 0.16], dtype=torch.float64),
        torch.tensor([False, False, True, True]),
    )


def as_images(points: Points) -> Float[Tensor, "n 1 1 2"]:
    """Turn points into images of two gray pixels: what the library works on."""
    return points[:, None, None]


def as_points(images: Float[Tensor, "n 1 1 2"]) -> Points:
    """Turn such images back into points."""
    return images[:, 0, 0]


def exact_denoiser(plane: Plane, schedule: Schedule | None = None) -> Denoiser:
    """Return the best denoiser there can be, as the library takes it."""
    chain = schedule or linear(1000)

    def network(x_t: Tensor, times: Tensor) -> Tensor:
        alpha_bar = at(chain.alpha_bar, times, as_points(x_t))
        return as_images(plane.expected(as_points(x_t), alpha_bar))

    return Denoiser(network, chain, prediction="sample", channels=1)


@dataclass(frozen=True)
class BayesClassifier:
    """The best classifier there can be, as the library takes it: class 1 is A."""

    plane: Plane

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        """Score points without noise."""
        return self.plane.log_odds(as_points(x))[:, None]
