"""FastDiME against its own chain without guidance: by hand on Gaussian pixels, and in the made-up world."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fastdime import toy
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.fill import filled
from fastdime.counterfactuals.loop import FAINT, Edit, chain_for_inpainting, guided, over_null
from fastdime.counterfactuals.methods import check_chain, cost, settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event
from fastdime.diffusion.sampling import inpaint
from fastdime.errors import InputError
from fastdime.noise import SeededNoise
from support import gaussian, tiny

SPOT = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
SPOT[:, :, 3:5, 3:5] = True
AROUND = torch.zeros(1, 1, 8, 8, dtype=torch.bool)  # what a blur of 3 pixels reaches from there
AROUND[:, :, 2:6, 2:6] = True
EVERYWHERE = torch.ones(2, 1, 8, 8, dtype=torch.bool)


@dataclass(frozen=True)
class Spot:
    """Log-odds = a weight times the sum of pixels in the spot; like the networks, it refuses NaN."""

    weight: float = 3.0

    def logits(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        assert x.isfinite().all()
        return self.weight * (x * SPOT).sum((1, 2, 3))[:, None]


def problem(weight: float = 3.0, target: int = 1, region: torch.Tensor | None = None) -> Problem:
    """Two dark images; the second has something bright in the spot."""
    x = torch.linspace(-0.5, -0.3, 128).view(2, 1, 8, 8)
    x[1:] = torch.where(SPOT, 0.8, x[1:])
    noise = SeededNoise(0, ["a", "b"])
    return Problem(x, torch.full((2,), target), gaussian.denoiser(), Spot(weight), noise, region)


def settings(**changes: object) -> GuidedSettings:
    plain = {"tau": 8, "steps": 50, "l1": 0.0, "clip_denoised": False, "dilation": 1}
    made = settings_for("fastdime-null", **(plain | changes))
    assert isinstance(made, GuidedSettings)
    return made


@torch.no_grad()
def watched(made: GuidedSettings, case: Problem, scale: float = 2.0) -> tuple[Edit, list[Event]]:
    events: list[Event] = []
    return guided(case, made, scale, events.append), events


@torch.no_grad()
def redrawn(case: Problem, mask: torch.Tensor) -> torch.Tensor:
    chain = chain_for_inpainting(case.denoiser, 50, 5)
    return inpaint(chain, filled(case.x, mask), case.x, mask, 5, case.part("inpaint"))


def test_where_something_comes_the_input_gets_what_guidance_added() -> None:
    """Everything is linear: guidance adds the same to each pixel of the spot, whatever noise and image."""
    case, scale = problem(), 2.0
    chain = case.denoiser.respaced(50)
    added = 0.0
    for t in range(7, -1, -1):
        ends = [chain.posterior(torch.full((1, 1, 1, 1), end), t, clip=False).mean for end in (0.0, 1.0)]
        variance = float(np.exp(chain.schedule.posterior_log_variance[t]))
        added = added * (ends[1] - ends[0]).item() + variance * scale * case.classifier.weight
    assert added > 0.3
    edit, _ = watched(settings(), case, scale)
    wanted = torch.where(SPOT, case.x + added, case.x)
    torch.testing.assert_close(edit.x_cf[0], wanted[0], atol=1e-5, rtol=0)
    assert torch.equal(edit.x_cf[:1][~SPOT], case.x[:1][~SPOT])
    assert edit.x_cf[1].max() == 1  # no pixel leaves the range
    assert torch.equal(edit.mask, AROUND.expand(2, -1, -1, -1))


def test_where_something_goes_it_is_covered_and_redrawn() -> None:
    case = problem(target=0)
    edit, _ = watched(settings(), case, scale=0.5)
    mask = AROUND.expand(2, -1, -1, -1)
    assert torch.equal(edit.mask, mask)
    torch.testing.assert_close(edit.x_cf[1], redrawn(case, mask)[1])
    assert edit.x_cf[1:][SPOT].mean() < 0.1
    assert torch.equal(edit.x_cf[~mask], case.x[~mask])


def test_each_image_of_a_batch_goes_its_own_way() -> None:
    """The first image is bright enough when changed, the second dark enough when redrawn."""
    case = replace(problem(), target=torch.tensor([1, 0]))
    together, _ = watched(settings(), case, scale=0.5)
    assert together.x_cf[0][SPOT[0]].mean() > case.x[0][SPOT[0]].mean() + 0.05
    torch.testing.assert_close(together.x_cf[1], redrawn(case, together.mask)[1])
    for row in range(2):
        alone, _ = watched(settings(), case.rows(torch.tensor([row])), scale=0.5)
        torch.testing.assert_close(alone.x_cf[0], together.x_cf[row], atol=1e-5, rtol=0)


def test_the_threshold_is_a_share_of_the_largest_blurred_difference() -> None:
    """The blur sees 2 of 4 pixels beside the spot, 1 at the corners; beside what is sure, faint is enough."""
    for threshold, area in ((0.2, 16), (0.25 / FAINT - 0.01, 16), (0.25 / FAINT + 0.01, 12), (1.0, 12)):
        edit, _ = watched(settings(threshold=threshold), problem())
        assert edit.mask.sum((1, 2, 3)).tolist() == [area, area]
    wide, _ = watched(settings(threshold=1.0, dilation=3), problem())
    assert wide.mask.sum((1, 2, 3)).tolist() == [32, 32]


@torch.no_grad()
def test_what_is_faint_and_apart_is_not_in_the_mask() -> None:
    """In a corner the blur sees 4 pixels: a pixel there counts 0.3 of the spot, or all of it."""
    case = problem()
    for height, found in ((0.16, 0), (16 / 30, 4)):
        added = 0.3 * SPOT.expand(2, -1, -1, -1)
        added[:, :, 0, 0] = height
        null = Edit(case.x, EVERYWHERE)
        made = over_null(case, settings(threshold=0.6), Edit(case.x + added, EVERYWHERE), null)
        assert made.mask[:, :, :2, :2].sum((1, 2, 3)).tolist() == [found, found]
        assert torch.equal(made.mask[:, :, 2:, 2:], AROUND[:, :, 2:, 2:].expand(2, -1, -1, -1))


def test_both_chains_have_the_same_noise_and_only_one_is_guided() -> None:
    case = problem()
    _, events = watched(settings(), case)
    first, second = events[:8], events[8:]
    assert [event.t for event in second] == [event.t for event in first] == list(range(7, -1, -1))
    assert torch.equal(first[0].x_t, second[0].x_t)
    assert all(event.class_gradient.any() for event in first)
    assert not any(event.class_gradient.any() for event in second)
    assert case.meter.gradient == {0: len(first), 1: len(first)}
    blind, _ = watched(settings(second_pass="none", guided_steps=0), problem())
    torch.testing.assert_close(second[-1].x_next, blind.x_cf)


@pytest.mark.parametrize("l1", [0.0, 0.4])
def test_guidance_without_effect_leaves_the_input_bit_for_bit(l1: float) -> None:
    case = problem(weight=0.0)
    edit, _ = watched(settings(l1=l1), case)
    assert torch.equal(edit.x_cf, case.x)
    assert not edit.mask.any()


@torch.no_grad()
def test_a_chain_that_ran_away_takes_nobody_along() -> None:
    """Whichever of the two chains it was, the image has no result, and its neighbour has its own."""
    case, (good, null) = problem(), (problem().x + 0.3 * SPOT, problem().x)
    alone = over_null(case, settings(), Edit(good, EVERYWHERE), Edit(null, EVERYWHERE))
    assert alone.x_cf.isfinite().all()
    for chain in (0, 1):
        images = [good.clone(), null.clone()]
        images[chain][0] = float("nan")
        made = over_null(case, settings(), *(Edit(image, EVERYWHERE) for image in images))
        assert made.x_cf[0].isnan().all()
        torch.testing.assert_close(made.x_cf[1], alone.x_cf[1])


def test_images_that_run_away_are_told_as_such() -> None:
    class Steep(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 1e30 * x.mean((1, 2, 3))[:, None]

    x = tiny.images()
    result = Explainer(tiny.denoiser(), ImageClassifier(Steep()), tiny.small("fastdime-null"))(x)
    assert result.diverged.all()
    assert torch.equal(result.x_cf, x)


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("mask", ["none", "difference"])
def test_nothing_changes_outside_the_region(mask: str, target: int) -> None:
    region = EVERYWHERE.clone()
    region[..., 4:] = False
    case = problem(target=target, region=region)
    edit, _ = watched(settings(mask=mask, l1=0.1), case)
    assert not (edit.mask & ~region).any()
    assert torch.equal(edit.x_cf[~edit.mask], case.x[~edit.mask])
    assert not torch.equal(edit.x_cf, case.x)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fastdime-null", {}),
        ("fastdime-null", {"guided_steps": 2}),
        ("fastdime-null", {"last_level": 1, "inpaint_steps": 7}),
        ("dime", {"second_pass": "null"}),
        ("gmd-nomask", {"second_pass": "null"}),
    ],
)
def test_cost_is_what_is_measured(method: str, changes: dict[str, object]) -> None:
    made = tiny.small(method, **({"scales": [0.001]} | changes))
    result = Explainer(tiny.denoiser(), tiny.classifier(), made)(tiny.images())
    assert result.denoiser_calls.tolist() == [cost(made)[0]] * 3
    assert result.gradient_calls.tolist() == [cost(made)[1]] * 3
    if method == "fastdime-null" and not changes:
        assert cost(made) == (2 * 6 + 3, 6)


def test_redrawing_needs_no_longer_chain_than_there_is() -> None:
    with pytest.raises(InputError, match="inpainting steps: expected at most 50, got 51"):
        check_chain(tiny.denoiser(), settings(inpaint_steps=51))


def test_it_comes_nearer_to_the_truth_than_a_mask() -> None:
    images = toy.pictures(8)
    errors = {}
    for method in ("fastdime", "fastdime-null"):
        explainer = Explainer(toy.denoiser(), toy.classifier(), settings_for(method, tau=30, l1=0.5))
        result = explainer(images.x)
        assert result.valid.all()
        errors[method] = (result.x_cf - images.other).abs().mean((1, 2, 3))
    gone = images.ring == 1
    assert errors["fastdime-null"][gone].mean() < 0.6 * errors["fastdime"][gone].mean()
    assert errors["fastdime-null"][~gone].mean() < errors["fastdime"][~gone].mean()
