"""Denoisers with a known answer, and what wraps them."""

import pytest
import torch
from diffusers import UNet2DModel

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser, as_denoiser
from fastdime.errors import InputError
from support import gaussian


@pytest.mark.parametrize("prediction", ["epsilon", "v", "sample", "edm"])
def test_three_ways_to_say_the_same(prediction: str) -> None:
    x_t = torch.linspace(-1, 1, 16).view(1, 1, 4, 4)
    posterior = gaussian.denoiser(prediction).posterior(x_t, 300, clip=False)
    alpha_bar = torch.tensor(sch.linear(1000).alpha_bar[300]).float()
    torch.testing.assert_close(posterior.x0_hat, gaussian.expected_clean(x_t, alpha_bar), atol=1e-5, rtol=0)


def test_clipping_moves_the_mean_too() -> None:
    denoiser = gaussian.denoiser()
    x_t = torch.full((1, 1, 1, 1), 30.0)
    free, clipped = denoiser.posterior(x_t, 5, clip=False), denoiser.posterior(x_t, 5)
    assert free.x0_hat.item() > 1
    assert clipped.x0_hat.item() == 1
    assert clipped.mean < free.mean


def test_variances() -> None:
    chain, x_t = sch.linear(1000), torch.zeros(2, 1, 2, 2)

    def network(x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(x), torch.full_like(x, 0.5)], 1)

    def plain(x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)

    small, large = chain.posterior_variance[100], chain.betas[100]
    learned = Denoiser(network, chain, variance="learned_range").posterior(x_t, 100).variance
    torch.testing.assert_close(learned, torch.full_like(x_t, large**0.75 * small**0.25))
    for name, value in (("fixed_small", small), ("fixed_large", large)):
        variance = Denoiser(plain, chain, variance=name).posterior(x_t, 100).variance
        assert abs(variance.item() - value) < 1e-9


def test_a_wrong_output_is_named() -> None:
    denoiser = Denoiser(lambda x, times: x[:, :1], sch.linear(1000), variance="learned_range")
    with pytest.raises(InputError, match="output of the denoiser network: expected shape"):
        denoiser.posterior(torch.zeros(1, 1, 4, 4), 3)


def test_wrapping_reads_what_the_network_tells() -> None:
    unet = UNet2DModel(
        sample_size=16,
        in_channels=1,
        out_channels=2,
        block_out_channels=(8, 8),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )
    denoiser = as_denoiser(unet)
    assert (denoiser.size, denoiser.channels, denoiser.variance) == (16, 1, "learned_range")
    assert unet.training
    posterior = denoiser.posterior(torch.zeros(2, 1, 16, 16), 10)
    assert posterior.mean.shape == (2, 1, 16, 16)
