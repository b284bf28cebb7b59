"""Training losses on the linear-Gaussian world."""

from dataclasses import replace

import pytest
import torch

from fastdime.diffusion.losses import gaussian_kl, pixel_log_likelihood, training_loss
from fastdime.diffusion.schedule import linear
from support import gaussian, tiny


@pytest.mark.parametrize("prediction", ["epsilon", "v", "sample", "edm"])
def test_the_exact_denoiser_is_at_the_bottom(prediction: str) -> None:
    """No constant factor on the prediction makes the exact denoiser better."""
    generator = torch.Generator().manual_seed(0)
    x = gaussian.MEAN + gaussian.SPREAD * torch.randn(64, 1, 8, 8, generator=generator)
    noise, t = torch.randn(x.shape, generator=generator), torch.full((64,), 400)
    exact = gaussian.denoiser(prediction)
    losses = []
    for factor in (0.9, 1.0, 1.1):
        network = exact.network
        off = replace(exact, network=lambda x_t, times, f=factor, n=network: f * n(x_t, times))
        losses.append(training_loss(off, x, t, noise).total.mean().item())
    assert losses[1] < losses[0]
    assert losses[1] < losses[2]


def test_the_variance_term_does_not_move_the_mean() -> None:
    denoiser = tiny.denoiser()
    denoiser.network.eval()
    x, t = tiny.images(4), torch.tensor([0, 5, 400, 999])
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    loss = training_loss(denoiser, x, t, noise)
    loss.variance.sum().backward()
    gradient = denoiser.network.outside.weight.grad
    assert not gradient[:1].any()
    assert gradient[1:].any()


def test_kl_by_hand() -> None:
    zero, one = torch.zeros(()), torch.ones(())
    assert gaussian_kl(zero, zero, zero, zero).item() == 0
    assert abs(gaussian_kl(one, zero, zero, zero).item() - 0.5) < 1e-6


def test_pixel_likelihoods_add_up_to_one() -> None:
    levels = torch.linspace(-1, 1, 256)
    mean, log_scale = torch.full((256,), 0.13), torch.full((256,), -1.5)
    total = pixel_log_likelihood(levels, mean, log_scale).exp().sum()
    assert abs(total.item() - 1) < 1e-3


def test_fixed_variance_has_no_variance_term() -> None:
    denoiser = tiny.denoiser(learned=False)
    x = tiny.images(2)
    loss = training_loss(denoiser, x, torch.tensor([1, 2]), torch.zeros_like(x))
    assert torch.equal(loss.total, loss.mse)
    assert len(denoiser.schedule) == len(linear(1000))
