"""What a denoiser is trained on: squared error of the prediction, and the variance term."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser


@dataclass(frozen=True)
class TrainingLoss:
    """Loss of each image: `total` = `mse` + `variance` (bits; 0 when the variance is fixed)."""

    total: Float[Tensor, " b"]
    mse: Float[Tensor, " b"]
    variance: Float[Tensor, " b"]


def training_loss(
    denoiser: Denoiser,
    x: Float[Tensor, "b c h w"],
    t: Int[Tensor, " b"],
    noise: Float[Tensor, "b c h w"],
    *,
    variance_weight: float = 1.0,
    emphasis: Float[Tensor, "1 1 h w"] | None = None,
) -> TrainingLoss:
    """Loss at levels t. The variance term does not move the mean (Nichol and Dhariwal, 2021).

    Args:
        emphasis: how much the squared error of each pixel counts, all the same unless given.
    """
    x_t = sch.q_sample(denoiser.schedule, x, t, noise)
    prediction, fraction = denoiser.output(x_t, t)
    error = (prediction - _wanted(denoiser, x, x_t, t, noise)) ** 2
    mse = _image_mean(error if emphasis is None else error * emphasis)
    if fraction is None:
        return TrainingLoss(mse, mse, torch.zeros_like(mse))
    frozen = torch.cat([prediction.detach(), fraction], dim=1)
    replay = replace(denoiser, network=lambda _x_t, _times: frozen)
    variance = variance_weight * variational_bits(replay, x, x_t, t)
    return TrainingLoss(mse + variance, mse, variance)


def _wanted(denoiser: Denoiser, x: Tensor, x_t: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    if denoiser.prediction == "epsilon":
        return noise
    if denoiser.prediction == "sample":
        return x
    if denoiser.prediction == "edm":
        kept, size = (
            sch.at(table, t, x_t) for table in (denoiser.schedule.edm_kept, denoiser.schedule.edm_size)
        )
        return (x - kept * x_t) / size
    signal = sch.at(denoiser.schedule.sqrt_alpha_bar, t, x_t)
    return signal * noise - sch.at(denoiser.schedule.sqrt_one_minus_alpha_bar, t, x_t) * x


def variational_bits(
    denoiser: Denoiser, x: Float[Tensor, "b c h w"], x_t: Float[Tensor, "b c h w"], t: Int[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """Variational bound in bits a pixel: KL to the true posterior; at level 0 the 8-bit likelihood."""
    model = denoiser.posterior(x_t, t, clip=False)
    true_mean = sch.posterior_mean(denoiser.schedule, x, x_t, t)
    true_log_variance = sch.at(denoiser.schedule.posterior_log_variance, t, x)
    divergence = gaussian_kl(true_mean, true_log_variance, model.mean, model.log_variance)
    likelihood = pixel_log_likelihood(x, model.mean, 0.5 * model.log_variance)
    last = (t == 0).view(-1, 1, 1, 1)
    return _image_mean(torch.where(last, -likelihood, divergence)) / math.log(2)


def gaussian_kl(mean_a: Tensor, log_var_a: Tensor, mean_b: Tensor, log_var_b: Tensor) -> Tensor:
    """KL divergence of two diagonal Gaussians, element by element."""
    ratio = log_var_a - log_var_b
    return 0.5 * (ratio.exp() - 1 - ratio + (mean_a - mean_b) ** 2 * (-log_var_b).exp())


def pixel_log_likelihood(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """Log-probability that a Gaussian falls into the 8-bit bin of each pixel."""
    inverse = (-log_scale).exp()
    upper = _normal_cdf((x - mean + 1 / 255) * inverse)
    lower = _normal_cdf((x - mean - 1 / 255) * inverse)
    inside = torch.where(x > 0.999, 1 - lower, upper - lower)
    return torch.where(x < -0.999, upper, inside).clamp(min=1e-12).log()


def _normal_cdf(x: Tensor) -> Tensor:
    # The tanh form, not erf: the published losses use it.
    return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _image_mean(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1)
