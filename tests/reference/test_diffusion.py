"""Schedules, training losses and plain sampling: every array in diffusion.npz."""

import re

import numpy as np
import pytest
import torch

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.losses import pixel_log_likelihood, training_loss
from fastdime.diffusion.sampling import sample
from support.recordings import Recording, TinyDenoiser, close, known, replay, thrown_away

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
SCHEDULE = r"T(\d+)_r(full|ddim\d+|\d+(?:,\d+)*)"
GROUPS = RECORDING.groups()
SCHEDULES = [name for name in GROUPS if re.fullmatch(SCHEDULE, name)]
TRAINING = [name for name in GROUPS if name in ("train", "train_rescaled")]
SAMPLERS = [name for name in GROUPS if name in ("ancestral", "ddim")]


def denoiser() -> Denoiser:
    network = TinyDenoiser(RECORDING)
    return Denoiser(network, sch.linear(int(network.length)), variance="learned_range")


def test_every_group_and_array_of_the_file_is_known() -> None:
    known(GROUPS, f"{SCHEDULE}|train|train_rescaled|ancestral|ddim")
    assert not RECORDING.left_over("")


@pytest.mark.parametrize("name", SCHEDULES)
def test_tables(name: str) -> None:
    length, spec = re.fullmatch(SCHEDULE, name).groups()
    schedule = sch.respace(sch.linear(int(length)), length if spec == "full" else spec)
    for key in [key for key in RECORDING.arrays if key.startswith(f"{name}/")]:
        ours = getattr(schedule, TABLES[key.removeprefix(f"{name}/")])
        np.testing.assert_allclose(ours, RECORDING.array(key), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("length", "spec", "kept"),
    [
        (6, "3", [0, 2, 5]),  # a half goes to the even number
        (16, "15", [*range(8), *range(9, 16)]),  # strides are summed up: the eighth is just below 7.5
        (11, "3,2", [0, 2, 5, 6, 10]),  # the first section is the longer one
        (10, "ddim2", [0, 5]),  # the first stride that gives two
    ],
)
def test_rounding_of_the_published_respacing(length: int, spec: str, kept: list[int]) -> None:
    """Cases in which another rounding gives other levels, whether the file has them or not."""
    assert sch.respaced_indices(length, spec) == kept


@torch.no_grad()
@pytest.mark.parametrize("name", TRAINING)
def test_training_loss(name: str) -> None:
    x, t, noise = (RECORDING.tensor(f"train/{part}") for part in ("x0", "t", "noise"))
    model = denoiser()
    weight = len(model.schedule) / 1000 if name == "train_rescaled" else 1.0
    loss = training_loss(model, x, t, noise, variance_weight=weight)
    close(loss.mse, RECORDING.tensor(f"{name}/mse"), 1e-5)
    close(loss.variance, RECORDING.tensor(f"{name}/vb"), 1e-5)
    close(loss.total, RECORDING.tensor(f"{name}/loss"), 1e-5)
    third = training_loss(model, x, t, noise, variance_weight=weight / 3)
    close(third.variance, RECORDING.tensor(f"{name}/vb") / 3, 1e-5)
    close(third.total, RECORDING.tensor(f"{name}/mse") + RECORDING.tensor(f"{name}/vb") / 3, 1e-5)
    if f"{name}/x_t" in RECORDING:
        close(sch.q_sample(model.schedule, x, t, noise), RECORDING.tensor(f"{name}/x_t"), 1e-5)
    assert not RECORDING.unseen(f"{name}/")


@pytest.mark.parametrize("mean", [-1.1, 0.2, 0.97])
def test_the_probabilities_of_all_pixel_values_add_up_to_one(mean: float) -> None:
    """So the outermost values take the tails, which recorded images may not reach."""
    values = torch.linspace(-1, 1, 256)
    likelihood = pixel_log_likelihood(values, torch.tensor(mean), torch.tensor(-1.5))
    close(likelihood.exp().sum(), torch.tensor(1.0))


@pytest.mark.parametrize("name", SAMPLERS)
def test_sampling(name: str) -> None:
    draws = RECORDING.tensor(f"{name}/noise")
    levels = range(len(draws) - 2, -1, -1)  # the first draw is the start
    noise = replay([("start",), *[("step", t) for t in levels]], draws)
    sampler = {"ancestral": "ddpm", "ddim": "ddim"}[name]
    image = sample(denoiser(), draws[0], noise, sampler=sampler, steps=len(levels))
    close(image, RECORDING.tensor(f"{name}/sample"), 1e-5)
    unused = noise.left if name == "ddim" else thrown_away(noise.left)
    assert noise.left == unused
    if f"{name}/respaced" in RECORDING:
        assert RECORDING.number(f"{name}/respaced") == len(levels)
    assert not RECORDING.unseen(f"{name}/")
