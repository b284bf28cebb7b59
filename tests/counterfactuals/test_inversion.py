"""Chains that begin with the noise that the denoiser finds in the input."""

from typing import Any

import pytest
import torch

from fastdime import toy
from fastdime.counterfactuals import loop
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import cost, settings_for
from fastdime.diffusion.sampling import ddim, ddim_step, found_noise
from fastdime.diffusion.schedule import q_sample
from fastdime.noise import SeededNoise
from support import tiny

LEVEL = 15


def test_the_chain_comes_back_to_the_image() -> None:
    x, chain = toy.pictures(6).x, toy.denoiser().respaced(50)
    drawn = SeededNoise(0, [str(row) for row in range(6)]).draw(x, "start")
    errors = [
        (ddim(chain, q_sample(chain.schedule, x, LEVEL, noise), range(LEVEL, -1, -1)) - x).abs().mean()
        for noise in (drawn, found_noise(chain, x, LEVEL))
    ]
    assert errors[1] < 0.3 * errors[0]


def test_it_is_closer_to_the_exact_counterfactual() -> None:
    images, errors = toy.pictures(12), []
    for changes in ({"l1": 0.5}, {"l1": 0.0, "inversion": True}):
        settings = settings_for("fastdime", steps=50, tau=10, scales=[4, 8], **changes)
        result = Explainer(toy.denoiser(), toy.classifier(), settings)(images.x)
        assert result.valid.all()
        errors.append((result.x_cf - images.other).abs().mean())
    assert errors[1] < errors[0]


def test_there_is_no_chance_in_it() -> None:
    settings = tiny.small("fastdime", inversion=True, scales=[0.001])
    results = [
        Explainer(tiny.denoiser(), tiny.classifier(), settings, seed=seed)(tiny.images()) for seed in (0, 1)
    ]
    assert torch.equal(results[0].x_cf, results[1].x_cf)
    drawn = tiny.small("fastdime", scales=[0.001])
    results = [
        Explainer(tiny.denoiser(), tiny.classifier(), drawn, seed=seed)(tiny.images()) for seed in (0, 1)
    ]
    assert not torch.equal(results[0].x_cf, results[1].x_cf)


def test_the_noise_that_is_found_is_that_of_the_first_step() -> None:
    """Published programs draw it one level above; there nothing would be found for that step."""
    results = [
        Explainer(
            tiny.denoiser(),
            tiny.classifier(),
            tiny.small("fastdime", inversion=True, scales=[0.001], start_above=above),
        )(tiny.images())
        for above in (False, True)
    ]
    assert torch.equal(results[0].x_cf, results[1].x_cf)
    assert torch.equal(results[0].denoiser_calls, results[1].denoiser_calls)


def test_a_chain_that_does_not_clip_comes_back_to_what_was_not_clipped() -> None:
    x, chain, errors = 3 * toy.pictures(6).x, toy.denoiser().respaced(50), []
    for clip in (False, True):
        x_t = q_sample(chain.schedule, x, LEVEL, found_noise(chain, x, LEVEL, clip=clip))
        for t in range(LEVEL, -1, -1):
            x_t = ddim_step(chain, x_t, t, chain.posterior(x_t, t, clip=False).x0_hat)
        errors.append((x_t - x).abs().mean())
    assert errors[0] < 0.1 * errors[1]


@pytest.mark.parametrize("clip", [True, False])
def test_the_way_up_clips_as_the_settings_say(clip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clipped = []

    def found(*arguments: Any, clip: bool) -> Any:
        clipped.append(clip)
        return found_noise(*arguments, clip=clip)

    monkeypatch.setattr(loop, "found_noise", found)
    settings = tiny.small("fastdime", inversion=True, clip_denoised=clip, scales=[0.001], skip_if_met=False)
    Explainer(tiny.denoiser(), tiny.classifier(), settings)(tiny.images())
    assert clipped == [clip]


@pytest.mark.parametrize("method", ["fastdime", "fastdime-2+", "fastdime-null", "gmd", "dime", "maskdime"])
def test_what_holds_everywhere(method: str) -> None:
    settings = tiny.small(method, inversion=True, scales=[0.001], skip_if_met=False)
    x, explainer = tiny.images(), Explainer(tiny.denoiser(), tiny.classifier(), settings)
    result = explainer(x)
    assert (result.x_cf == x)[~result.mask.expand_as(x)].all()
    assert result.denoiser_calls.tolist() == [cost(settings)[0]] * len(x)
    alone = explainer(x[1:2], ids=["1"])
    assert torch.allclose(alone.x_cf, result.x_cf[1:2], atol=1e-4)
