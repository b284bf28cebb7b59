"""A network plus a schedule is a denoiser: it turns x_t into the next state and the clean image."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.schedule import Level, Schedule
from fastdime.errors import InputError, expected
from fastdime.types import Posterior

Network = Callable[[Tensor, Tensor], Any]
Prediction = Literal["epsilon", "v", "sample", "edm"]
Variance = Literal["learned_range", "fixed_small", "fixed_large"]


@dataclass(frozen=True)
class Denoiser:
    """A diffusion model as the rest of the library sees it.

    Attributes:
        network: called with (x_t, times); a tensor, a tuple or an object with `.sample` comes back.
        schedule: the chain it was trained on, or a re-spaced part of it.
        prediction: what the network predicts: the noise, the image, or a mixture that depends on the level
            ("v", "edm").
        variance: "learned_range" (the network returns twice the channels), "fixed_small" (posterior) or
            "fixed_large" (beta).
        size: height and width it was made for; None = any.
        channels: 1 or 3; None = any.
    """

    network: Network
    schedule: Schedule
    prediction: Prediction = "epsilon"
    variance: Variance = "fixed_small"
    size: int | None = None
    channels: int | None = None

    def respaced(self, steps: int | str) -> "Denoiser":
        """Return the same model on a shorter chain."""
        return replace(self, schedule=sch.respace(self.schedule, steps))

    def rebuilt(self, steps: int) -> "Denoiser":
        """Return the same model on a new linear chain of another length."""
        return replace(self, schedule=sch.rebuild(self.schedule, steps))

    def times(self, t: Level, like: Tensor) -> Tensor:
        """Return what the network is told at level t, one number an image."""
        levels = torch.full((len(like),), t) if isinstance(t, int) else t.cpu()
        return torch.from_numpy(self.schedule.network_times)[levels].to(like.device)

    def output(self, x_t: Float[Tensor, "b c h w"], t: Level) -> tuple[Tensor, Tensor | None]:
        """Call the network once; return its prediction and, if it has one, the variance fraction."""
        out = answer_of(self.network(x_t, self.times(t, x_t)))
        wanted = x_t.shape[1] * (2 if self.variance == "learned_range" else 1)
        if out.shape != (len(x_t), wanted, *x_t.shape[2:]):
            raise InputError(
                expected(
                    "output of the denoiser network",
                    f"shape {(len(x_t), wanted, *x_t.shape[2:])} for variance={self.variance!r}",
                    tuple(out.shape),
                    "check the number of channels and the variance setting",
                )
            )
        if self.variance == "learned_range":
            return out.chunk(2, dim=1)[0], out.chunk(2, dim=1)[1]
        return out, None

    def clean(self, x_t: Float[Tensor, "b c h w"], t: Level, prediction: Tensor) -> Tensor:
        """Turn what the network predicts into the clean image."""
        if self.prediction == "sample":
            return prediction
        if self.prediction == "v":
            signal = sch.at(self.schedule.sqrt_alpha_bar, t, x_t)
            noise = sch.at(self.schedule.sqrt_one_minus_alpha_bar, t, x_t)
            return signal * x_t - noise * prediction
        if self.prediction == "edm":
            kept, size = sch.at(self.schedule.edm_kept, t, x_t), sch.at(self.schedule.edm_size, t, x_t)
            return kept * x_t + size * prediction
        return sch.clean_from_noise(self.schedule, x_t, t, prediction)

    def posterior(self, x_t: Float[Tensor, "b c h w"], t: Level, *, clip: bool = True) -> Posterior:
        """Denoise x_t at level t.

        Args:
            clip: keep the clean image in [-1, 1].
        """
        prediction, fraction = self.output(x_t, t)
        x0_hat = self.clean(x_t, t, prediction)
        if clip:
            x0_hat = x0_hat.clamp(-1, 1)
        log_variance = self._log_variance(x_t, t, fraction)
        mean = sch.posterior_mean(self.schedule, x0_hat, x_t, t)
        return Posterior(mean, log_variance.exp(), log_variance, x0_hat)

    def _log_variance(self, x_t: Tensor, t: Level, fraction: Tensor | None) -> Tensor:
        small = sch.at(self.schedule.posterior_log_variance, t, x_t)
        large = sch.at(np.log(self.schedule.betas), t, x_t)
        if fraction is not None:
            share = (fraction + 1) / 2
            return share * large + (1 - share) * small
        return small if self.variance == "fixed_small" else large


def answer_of(answer: Any) -> Tensor:
    """Return what a network answers as a tensor: diffusers returns an object, others a tuple."""
    if not isinstance(answer, Tensor):
        answer = answer[0] if isinstance(answer, tuple) else answer.sample
    found: Tensor = answer
    return found


def as_denoiser(
    network: Network,
    schedule: Schedule | None = None,
    *,
    prediction: Prediction = "epsilon",
    variance: Variance | None = None,
) -> Denoiser:
    """Wrap a network or any callable `eps(x_t, t)`; the chain is 1000 linear steps unless given.

    Channels and size are read from a diffusers or MONAI network when it tells them.
    """
    if not callable(network):
        raise InputError(expected("denoiser", "a callable eps(x_t, t)", type(network).__name__))
    config = getattr(network, "config", network)  # diffusers tells there, MONAI on the network itself
    channels, out = getattr(config, "in_channels", None), getattr(config, "out_channels", None)
    learned = isinstance(channels, int) and out == 2 * channels
    return Denoiser(
        network,
        schedule or sch.linear(1000),
        prediction,
        variance or ("learned_range" if learned else "fixed_small"),
        size=_square(getattr(config, "sample_size", None)),
        channels=channels if isinstance(channels, int) else None,
    )


def _square(size: object) -> int | None:
    if isinstance(size, list | tuple) and len(set(size)) == 1:
        return int(size[0])
    return size if isinstance(size, int) else None
