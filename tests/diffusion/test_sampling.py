"""Plain chains on the linear-Gaussian world: the samples must be its pixels again."""

import pytest
import torch

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.sampling import ancestral, inpaint, sample
from fastdime.errors import InputError
from fastdime.noise import SeededNoise
from support import gaussian

SHAPE = torch.zeros(2, 1, 40, 40)
NOISE = SeededNoise(0, ["a", "b"])


@pytest.mark.parametrize(
    ("sampler", "steps", "tolerance"),
    [("ddpm", None, 0.02), ("ddpm", 100, 0.03), ("ddim", 100, 0.02), ("dpm-solver++", 40, 0.03)],
)
def test_samples_have_the_right_mean_and_spread(sampler: str, steps: int | None, tolerance: float) -> None:
    x = sample(gaussian.denoiser(), SHAPE, NOISE, sampler=sampler, steps=steps)
    assert abs(x.mean().item() - gaussian.MEAN) < tolerance
    assert abs(x.std().item() - gaussian.SPREAD) < tolerance


def test_deterministic_samplers_agree_on_the_image() -> None:
    one = sample(gaussian.denoiser(), SHAPE, NOISE, sampler="ddim", steps=200)
    other = sample(gaussian.denoiser(), SHAPE, NOISE, sampler="dpm-solver++", steps=30)
    assert (one - other).abs().mean() < 0.02


def test_a_sample_depends_on_seed_and_id_alone() -> None:
    both = sample(gaussian.denoiser(), SHAPE, NOISE, steps=20)
    alone = sample(gaussian.denoiser(), SHAPE[:1], SeededNoise(0, ["b"]), steps=20)
    torch.testing.assert_close(alone[0], both[1], atol=1e-5, rtol=0)


def test_unknown_sampler() -> None:
    with pytest.raises(InputError, match="did you mean 'ddim'"):
        sample(gaussian.denoiser(), SHAPE, NOISE, sampler="dim")


def test_no_noise_source_means_the_mean() -> None:
    denoiser = gaussian.denoiser()
    x_t = torch.full((1, 1, 2, 2), 0.7)
    assert torch.equal(ancestral(denoiser, x_t, [9], None), denoiser.posterior(x_t, 9).mean)


def test_inpainting_keeps_the_surroundings_and_redraws_the_inside() -> None:
    denoiser = gaussian.denoiser().respaced(50)
    x = torch.full((2, 1, 40, 40), 0.9)
    mask = torch.zeros(2, 1, 40, 40, dtype=torch.bool)
    mask[:, :, :20] = True
    start = torch.full_like(x, 0.2)
    result = inpaint(denoiser, start, x, mask, 10, NOISE)
    assert torch.equal(result[~mask], x[~mask])
    assert abs(result[mask].mean().item() - 0.2) < 0.05


def test_inpainting_pastes_at_the_level_of_the_state() -> None:
    """The denoiser sees the surroundings with exactly the noise of the level it is told."""
    seen: list[tuple[int, torch.Tensor]] = []
    denoiser = gaussian.denoiser().respaced(50)

    def spy(x_t: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        seen.append((int(times[0]), x_t))
        return gaussian.denoiser().network(x_t, times)

    x = torch.zeros(2, 1, 40, 40)
    spied = type(denoiser)(spy, denoiser.schedule)
    inpaint(spied, x, x, torch.zeros(2, 1, 40, 40, dtype=torch.bool), 5, NOISE)
    for time, x_t in seen:
        spread = (1 - sch.linear(1000).alpha_bar[time]) ** 0.5
        assert abs(x_t.std().item() / spread - 1) < 0.06
