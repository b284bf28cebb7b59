"""Schedules, training losses and plain sampling: every array in diffusion.npz."""

import re

import numpy as np
import pytest
import torch

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.losses import training_loss
from fastdime.diffusion.sampling import sample
from support.recordings import NETWORK_ARRAYS, Recording, TinyDenoiser, close, replay

RECORDING = Recording("diffusion")
TABLES = {
    "betas": "betas",
    "alphas_cumprod": "alpha_bar",
    "alphas_cumprod_prev": "alpha_bar_prev",
    "sqrt_alphas_cumprod": "sqrt_alpha_bar",
    "sqrt_one_minus_alphas_cumprod": "sqrt_one_minus_alpha_bar",
    "sqrt_recip_alphas_cumprod": "sqrt_recip_alpha_bar",
    "sqrt_recipm1_alphas_cumprod": "sqrt_recip_alpha_bar_minus_one",
    "posterior_variance": "posterior_variance",
    "posterior_log_variance_clipped": "posterior_log_variance",
    "posterior_mean_coef1": "posterior_from_clean",
    "posterior_mean_coef2": "posterior_from_state",
    "timestep_map": "network_times",
}
SCHEDULES = [name for name in RECORDING.groups() if re.fullmatch(r"T\d+_r.+", name)]


def denoiser() -> Denoiser:
    network = TinyDenoiser(RECORDING)
    return Denoiser(network, sch.linear(int(network.length)), variance="learned_range")


@pytest.mark.parametrize("name", SCHEDULES)
def test_tables(name: str) -> None:
    length, spec = re.fullmatch(r"T(\d+)_r(.+)", name).groups()
    full = sch.linear(int(length))
    schedule = full if spec == "full" else sch.respace(full, spec)
    for recorded, ours in TABLES.items():
        np.testing.assert_allclose(
            getattr(schedule, ours), RECORDING.array(f"{name}/{recorded}"), rtol=1e-12, atol=1e-12
        )
    assert not RECORDING.unseen(f"{name}/")


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in RECORDING.groups() if name.startswith("train")])
def test_training_loss(name: str) -> None:
    x, t, noise = (RECORDING.tensor(f"train/{part}") for part in ("x0", "t", "noise"))
    model = denoiser()
    weight = len(model.schedule) / 1000 if name == "train_rescaled" else 1.0
    loss = training_loss(model, x, t, noise, variance_weight=weight)
    close(loss.mse, RECORDING.tensor(f"{name}/mse"), 1e-5)
    close(loss.variance, RECORDING.tensor(f"{name}/vb"), 1e-5)
    close(loss.total, RECORDING.tensor(f"{name}/loss"), 1e-5)
    if f"{name}/x_t" in RECORDING:
        close(sch.q_sample(model.schedule, x, t, noise), RECORDING.tensor(f"{name}/x_t"), 1e-5)
    assert not RECORDING.unseen(f"{name}/")


@pytest.mark.parametrize(("name", "sampler"), [("ancestral", "ddpm"), ("ddim", "ddim")])
def test_sampling(name: str, sampler: str) -> None:
    steps = int(RECORDING.number("ancestral/respaced"))
    draws = RECORDING.tensor(f"{name}/noise")
    noise = replay([("start",), *[("step", t) for t in range(steps - 1, -1, -1)]], draws)
    image = sample(denoiser(), draws[0], noise, sampler=sampler, steps=steps)
    close(image, RECORDING.tensor(f"{name}/sample"), 1e-5)
    assert not RECORDING.unseen(f"{name}/")


def test_no_array_is_left_over() -> None:
    assert SCHEDULES
    assert set(RECORDING.groups()) - set(SCHEDULES) <= {"train", "train_rescaled", "ancestral", "ddim"}
    assert {key for key in RECORDING.arrays if "/" not in key} <= NETWORK_ARRAYS
