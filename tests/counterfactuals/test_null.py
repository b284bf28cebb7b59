"""FastDiME minus what its chain changes on its own: by hand, on Gaussian pixels, and in the made-up world."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fastdime import toy
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.loop import CONVINCED, Edit, guided, over_null
from fastdime.counterfactuals.methods import cost, settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event
from fastdime.noise import SeededNoise
from support import gaussian, tiny


@dataclass(frozen=True)
class Linear:
    """Log-odds = a weight times the sum of pixels."""

    weight: float = 3.0

    def logits(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return self.weight * x.sum((1, 2, 3))[:, None]


def problem(weight: float = 3.0, region: torch.Tensor | None = None) -> Problem:
    """Two images: one below the mean that the chain pulls pixels to, one above it."""
    x = torch.stack([torch.linspace(-0.5, -0.3, 36), torch.linspace(0.5, 0.7, 36)]).view(2, 1, 6, 6)
    noise = SeededNoise(0, ["a", "b"])
    return Problem(x, torch.ones(2, dtype=torch.int64), gaussian.denoiser(), Linear(weight), noise, region)


def settings(**changes: object) -> GuidedSettings:
    plain = {"tau": 8, "steps": 50, "l1": 0.0, "clip_denoised": False}
    made = settings_for("fastdime-null", **(plain | changes))
    assert isinstance(made, GuidedSettings)
    return made


@torch.no_grad()
def watched(made: GuidedSettings, case: Problem, scale: float = 2.0) -> tuple[Edit, list[Event]]:
    events: list[Event] = []
    return guided(case, made, scale, events.append), events


def edits(*values: list[float]) -> list[Edit]:
    """Make edits of flat images, one value an image."""
    everywhere = torch.ones(len(values[0]), 1, 6, 6, dtype=torch.bool)
    return [
        Edit(torch.tensor(row).view(-1, 1, 1, 1).expand(-1, 1, 6, 6).clone(), everywhere) for row in values
    ]


def flat(x: list[float], target: int = 1) -> Problem:
    return replace(problem(), x=edits(x)[0].x_cf, target=torch.full((len(x),), target))


def test_the_input_gets_what_guidance_added() -> None:
    """Everything is linear: guidance adds the same to every pixel, whatever the noise and the image."""
    case, scale = problem(), 0.5
    chain = case.denoiser.respaced(50)
    added = 0.0
    for t in range(7, -1, -1):
        ends = [chain.posterior(torch.full((1, 1, 1, 1), end), t, clip=False).mean for end in (0.0, 1.0)]
        variance = float(np.exp(chain.schedule.posterior_log_variance[t]))
        added = added * (ends[1] - ends[0]).item() + variance * scale * case.classifier.weight
    assert 0.02 < added < 0.3
    edit, _ = watched(settings(), case, scale)
    torch.testing.assert_close(edit.x_cf[1], case.x[1] + added, atol=1e-5, rtol=0)
    # The chain raises the first image by itself, so the classifier is convinced less without its part.
    plain, _ = watched(settings(second_pass="none"), case, scale)
    assert (plain.x_cf[0] - case.x[0]).mean() * CONVINCED > added
    assert torch.equal(edit.x_cf[0], plain.x_cf[0])


def test_both_chains_have_the_same_noise_and_only_one_is_guided() -> None:
    case = problem()
    _, events = watched(settings(), case)
    first, second = events[:8], events[8:]
    assert [event.t for event in second] == [event.t for event in first] == list(range(7, -1, -1))
    assert torch.equal(first[0].x_t, second[0].x_t)
    assert all(event.class_gradient.all() for event in first)
    assert not any(event.class_gradient.any() for event in second)
    assert case.meter.gradient == len(first)
    blind, _ = watched(settings(second_pass="none", guided_steps=0), problem())
    torch.testing.assert_close(second[-1].x_next, blind.x_cf)


@pytest.mark.parametrize("l1", [0.0, 0.4])
def test_guidance_without_effect_leaves_the_input_bit_for_bit(l1: float) -> None:
    case = problem(weight=0.0)
    assert torch.equal(watched(settings(l1=l1), case)[0].x_cf, case.x)


def test_where_the_chain_does_part_of_the_work_the_edit_stays() -> None:
    """Gains of the guided edit: 0.5; without what the chain does: just enough, too little, all, more."""
    rest = 0.5 * (1 - CONVINCED)
    edit, null = edits([0.25] * 4, [-0.25 + rest - 0.01, -0.25 + rest + 0.01, -0.25, -0.5])
    made = over_null(flat([-0.25] * 4), edit, null)
    wanted = edits([0.25 - rest + 0.01, 0.25, 0.25, 0.5])[0].x_cf
    torch.testing.assert_close(made.x_cf, wanted)
    assert torch.equal(made.mask, edit.mask)


def test_the_way_down_is_the_same() -> None:
    made = over_null(flat([0.25, 0.25], target=0), *edits([-0.25, -0.25], [0.3, 0.1]))
    torch.testing.assert_close(made.x_cf, edits([-0.3, -0.25])[0].x_cf)


def test_no_pixel_leaves_the_range() -> None:
    made = over_null(flat([0.9, 0.9]), *edits([1.0, 0.95], [0.6, 0.9]))
    torch.testing.assert_close(made.x_cf, edits([1.0, 0.95])[0].x_cf)


def test_a_chain_that_ran_away() -> None:
    """Without the guided chain there is nothing; without the other one there is the guided edit."""
    lost = float("nan")
    made = over_null(flat([0.0, 0.0]), *edits([lost, 0.5], [0.0, lost]))
    assert made.x_cf[0].isnan().all()
    assert made.x_cf[1].eq(0.5).all()


@pytest.mark.parametrize("mask", ["none", "difference"])
def test_nothing_changes_outside_the_mask(mask: str) -> None:
    """With a mask rule the two chains have masks of their own; that of the guided one counts."""
    region = torch.zeros(2, 1, 6, 6, dtype=torch.bool)
    region[:, :, :3] = True
    case = problem(region=region)
    edit, events = watched(settings(mask=mask, dilation=1, threshold=0.8, l1=0.1), case)
    assert not (edit.mask & ~region).any()
    assert torch.equal(edit.x_cf[~edit.mask], case.x[~edit.mask])
    assert not torch.equal(edit.x_cf, case.x)
    if mask == "difference":
        assert (events[-1].mask & ~edit.mask).any()


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fastdime-null", {}),
        ("fastdime-null", {"guided_steps": 2}),
        ("fastdime-null", {"last_level": 1}),
        ("dime", {"second_pass": "null"}),
        ("gmd-nomask", {"second_pass": "null"}),
    ],
)
def test_cost_is_what_is_measured(method: str, changes: dict[str, object]) -> None:
    made = tiny.small(method, scales=[0.001], **changes)
    result = Explainer(tiny.denoiser(), tiny.classifier(), made)(tiny.images())
    assert result.denoiser_calls.tolist() == [cost(made)[0]] * 3
    assert result.gradient_calls.tolist() == [cost(made)[1]] * 3


def test_it_comes_nearer_to_the_truth_than_the_guided_chain_alone() -> None:
    images = toy.pictures(8)
    errors = {}
    for method in ("fastdime-nomask", "fastdime-null"):
        explainer = Explainer(toy.denoiser(), toy.classifier(), settings_for(method, tau=30, l1=0.5))
        result = explainer(images.x)
        assert result.valid.all()
        errors[method] = (result.x_cf - images.other).abs().mean()
    assert errors["fastdime-null"] < 0.6 * errors["fastdime-nomask"]
