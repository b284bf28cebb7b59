"""Unguided chains: plain sampling, and inpainting between a start and an original."""

import warnings
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.errors import InputError, unknown
from fastdime.noise import Noise
from fastdime.types import Posterior

SAMPLERS = ("ddpm", "ddim", "dpm-solver++")


def step_down(
    posterior: Posterior, t: int, noise: Noise | None, *, quiet: int = 0
) -> Float[Tensor, "b c h w"]:
    """Draw x_{t-1}; levels up to `quiet`, or no noise source, give the mean."""
    if noise is None or t <= quiet:
        return posterior.mean
    return posterior.mean + (0.5 * posterior.log_variance).exp() * noise.draw(posterior.mean, "step", t)


def ancestral(
    denoiser: Denoiser,
    x_t: Float[Tensor, "b c h w"],
    levels: Iterable[int],
    noise: Noise | None,
    *,
    clip: bool = True,
    quiet: int = 0,
) -> Float[Tensor, "b c h w"]:
    """Run an unguided DDPM chain from x_t down through `levels`."""
    for t in levels:
        x_t = step_down(denoiser.posterior(x_t, t, clip=clip), t, noise, quiet=quiet)
    return x_t


def ddim(
    denoiser: Denoiser, x_t: Float[Tensor, "b c h w"], levels: Iterable[int]
) -> Float[Tensor, "b c h w"]:
    """Run a deterministic DDIM chain from x_t down through `levels`."""
    for t in levels:
        x_t = ddim_step(denoiser, x_t, t, denoiser.posterior(x_t, t).x0_hat)
    return x_t


def ddim_step(
    denoiser: Denoiser, x_t: Float[Tensor, "b c h w"], t: int, x0_hat: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b c h w"]:
    """Return the state of the level below, with the noise that is in this one."""
    noise = sch.noise_from_clean(denoiser.schedule, x_t, t, x0_hat)
    left = float(denoiser.schedule.alpha_bar_prev[t])
    below: Tensor = left**0.5 * x0_hat + (1 - left) ** 0.5 * noise
    return below


def found_noise(
    denoiser: Denoiser, x: Float[Tensor, "b c h w"], level: int, *, clip: bool = True
) -> Float[Tensor, "b c h w"]:
    """Return the noise from which a DDIM chain comes back to the images, nearly: the chain run upwards.

    One call for each level. To noise images with it, `q_sample` them at that level.
    """
    x_t = sch.q_sample(denoiser.schedule, x, 0, torch.zeros_like(x))
    for t in range(level):
        x0_hat = denoiser.posterior(x_t, t, clip=clip).x0_hat
        noise = sch.noise_from_clean(denoiser.schedule, x_t, t, x0_hat)
        x_t = sch.q_sample(denoiser.schedule, x0_hat, t + 1, noise)
    return sch.noise_from_clean(denoiser.schedule, x_t, level, x)


def dpm_solver(denoiser: Denoiser, x_t: Float[Tensor, "b c h w"], steps: int) -> Float[Tensor, "b c h w"]:
    """Run DPM-Solver++ (second order, multistep) over the whole chain in `steps` calls."""
    from diffusers import DPMSolverMultistepScheduler

    solver = DPMSolverMultistepScheduler(
        num_train_timesteps=len(denoiser.schedule),
        trained_betas=denoiser.schedule.betas,
        prediction_type="sample",
        algorithm_type="dpmsolver++",
        final_sigmas_type="zero",
    )
    with warnings.catch_warnings():  # diffusers hands torch tensors to numpy in a way that is going out
        warnings.simplefilter("ignore", DeprecationWarning)
        solver.set_timesteps(steps)
    for t in solver.timesteps:
        x0_hat = denoiser.posterior(x_t, int(t)).x0_hat
        x_t = solver.step(x0_hat, t, x_t, return_dict=False)[0]
    return x_t


@torch.no_grad()
def sample(
    denoiser: Denoiser,
    like: Float[Tensor, "b c h w"],
    noise: Noise,
    *,
    sampler: str = "ddpm",
    steps: int | None = None,
) -> Float[Tensor, "b c h w"]:
    """Draw images from nothing.

    Args:
        like: a tensor of the shape, type and device wanted; its values do not matter.
        sampler: "ddpm", "ddim" or "dpm-solver++".
        steps: network calls; the whole chain unless given.
    """
    if sampler not in SAMPLERS:
        raise InputError(unknown("sampler", sampler, SAMPLERS))
    x_t = noise.draw(like, "start")
    if sampler == "dpm-solver++":
        return dpm_solver(denoiser, x_t, steps or len(denoiser.schedule))
    chain = denoiser.respaced(steps) if steps else denoiser
    levels = range(len(chain.schedule) - 1, -1, -1)
    if sampler == "ddim":
        return ddim(chain, x_t, levels)
    return ancestral(chain, x_t, levels, noise)


def inpaint(
    denoiser: Denoiser,
    start: Float[Tensor, "b c h w"],
    x: Float[Tensor, "b c h w"],
    mask: Bool[Tensor, "b 1 h w"],
    steps: int,
    noise: Noise,
) -> Float[Tensor, "b c h w"]:
    """Redraw `start` inside the mask in the last `steps` levels, with x around it (as RePaint, one pass)."""
    x_t = sch.q_sample(denoiser.schedule, start, steps - 1, noise.draw(x, "start"))
    for t in range(steps - 1, -1, -1):
        around = sch.q_sample(denoiser.schedule, x, t, noise.draw(x, "paste", t))
        x_t = torch.where(mask, x_t, around)
        x_t = step_down(denoiser.posterior(x_t, t), t, noise)
    return torch.where(mask, x_t, x)
