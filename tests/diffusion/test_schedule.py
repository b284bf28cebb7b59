"""Schedules by hand and against diffusers."""

import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler

from fastdime.diffusion import schedule as sch
from fastdime.errors import InputError


@pytest.mark.parametrize(
    ("ours", "name", "ends"),
    [
        (sch.linear(1000), "linear", {"beta_start": 1e-4, "beta_end": 0.02}),
        (sch.scaled_linear(1000), "scaled_linear", {"beta_start": 0.00085, "beta_end": 0.012}),
        (sch.cosine(1000), "squaredcos_cap_v2", {}),
    ],
)
def test_the_same_betas_as_diffusers(ours: sch.Schedule, name: str, ends: dict[str, float]) -> None:
    theirs = DDPMScheduler(num_train_timesteps=1000, beta_schedule=name, **ends)
    np.testing.assert_allclose(ours.betas, theirs.betas.double(), atol=1e-7)


def test_a_shorter_linear_chain_ends_equally_noisy() -> None:
    assert abs(sch.linear(400).alpha_bar[-1] - sch.linear(1000).alpha_bar[-1]) < 1e-4


def test_respacing_keeps_the_noise_levels() -> None:
    full = sch.linear(500)
    part = sch.respace(full, 200)
    np.testing.assert_allclose(part.alpha_bar, full.alpha_bar[part.network_times], rtol=1e-12)
    assert part.network_times[[0, 60, -1]].tolist() == [0, 150, 499]
    assert abs(part.sqrt_alpha_bar[60] - 0.625847) < 1e-6


def test_respacing_by_sections_and_strides() -> None:
    assert sch.respaced_indices(10, "2,3") == [0, 4, 5, 7, 9]
    assert sch.respaced_indices(10, "ddim5") == [0, 2, 4, 6, 8]
    assert sch.respaced_indices(7, 1) == [0]
    assert sch.respaced_indices(6, 6) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("spec", [0, 11, "ddim7", "5,6"])
def test_respacing_that_cannot_be_is_refused(spec: int | str) -> None:
    with pytest.raises(InputError, match="steps: expected"):
        sch.respaced_indices(10, spec)


def test_a_rebuilt_chain_tells_scaled_times() -> None:
    chain = sch.rebuild(sch.linear(1000), 400)
    np.testing.assert_allclose(chain.betas, sch.linear(400).betas)
    assert chain.network_times[[0, 1, 2, 3, 399]].tolist() == [0, 2, 5, 7, 997]
    with pytest.raises(InputError, match="linear"):
        sch.rebuild(sch.cosine(1000), 400)


@pytest.mark.parametrize("betas", [[], [0.1, -0.1], [0.1, 1.5], [0.1, float("nan")]])
def test_betas_that_are_no_chain_are_refused(betas: list[float]) -> None:
    with pytest.raises(InputError, match="betas"):
        sch.from_betas(betas)


def test_forward_and_back() -> None:
    chain = sch.linear(1000)
    x, noise = torch.rand(2, 1, 4, 4), torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    t = torch.tensor([3, 700])
    x_t = sch.q_sample(chain, x, t, noise)
    torch.testing.assert_close(sch.clean_from_noise(chain, x_t, t, noise), x, atol=1e-4, rtol=0)
    torch.testing.assert_close(sch.noise_from_clean(chain, x_t, t, x), noise, atol=1e-4, rtol=0)
    for row, level in enumerate(t.tolist()):
        one = sch.q_sample(chain, x[row : row + 1], level, noise[row : row + 1])
        torch.testing.assert_close(one, x_t[row : row + 1])


def test_the_posterior_is_the_product_of_two_gaussians() -> None:
    chain, t = sch.linear(1000), 250
    beta, before = chain.betas[t], chain.alpha_bar[t - 1]
    precision = 1 / (1 - before) + (1 - beta) / beta
    assert abs(chain.posterior_variance[t] - 1 / precision) < 1e-12
    x0, x_t = 0.4, -1.3
    mean = (np.sqrt(before) * x0 / (1 - before) + np.sqrt(1 - beta) * x_t / beta) / precision
    ours = sch.posterior_mean(chain, torch.full((1, 1, 1, 1), x0), torch.full((1, 1, 1, 1), x_t), t)
    assert abs(ours.item() - mean) < 1e-6
