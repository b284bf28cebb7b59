"""A linear-Gaussian world: every pixel is N(MEAN, SPREAD^2), so the best denoiser is one line."""

import torch
from torch import Tensor

from fastdime.diffusion.denoiser import Denoiser, Prediction
from fastdime.diffusion.schedule import DETAIL, linear

MEAN, SPREAD = 0.2, 0.3


def expected_clean(x_t: Tensor, alpha_bar: Tensor) -> Tensor:
    gain = alpha_bar.sqrt() * SPREAD**2 / (alpha_bar * SPREAD**2 + 1 - alpha_bar)
    return MEAN + gain * (x_t - alpha_bar.sqrt() * MEAN)


def denoiser(prediction: Prediction = "epsilon") -> Denoiser:
    """The exact denoiser, saying the same thing in one of four ways."""
    schedule = linear(1000)
    table = torch.from_numpy(schedule.alpha_bar)

    def network(x_t: Tensor, times: Tensor) -> Tensor:
        alpha_bar = table[times].to(x_t).view(-1, 1, 1, 1)
        clean = expected_clean(x_t, alpha_bar)
        noise = (x_t - alpha_bar.sqrt() * clean) / (1 - alpha_bar).sqrt()
        velocity = alpha_bar.sqrt() * noise - (1 - alpha_bar).sqrt() * clean
        sigma = ((1 - alpha_bar) / alpha_bar).sqrt()  # as Karras et al. (2022) write it, table 1
        c_skip = DETAIL**2 / (sigma**2 + DETAIL**2)
        c_out = sigma * DETAIL / (sigma**2 + DETAIL**2).sqrt()
        missing = (clean - c_skip * x_t / alpha_bar.sqrt()) / c_out
        return {"epsilon": noise, "v": velocity, "sample": clean, "edm": missing}[prediction]

    return Denoiser(network, schedule, prediction)
