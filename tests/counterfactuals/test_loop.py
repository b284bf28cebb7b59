"""The guided loop on the linear-Gaussian world, where its steps can be worked out by hand."""

from dataclasses import dataclass, replace

import pytest
import torch

from fastdime.counterfactuals.loop import guided
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.sampling import ancestral, step_down
from fastdime.errors import InputError
from fastdime.noise import SeededNoise
from support import gaussian

WEIGHT = 3.0


@dataclass(frozen=True)
class LinearClassifier:
    """Log-odds = WEIGHT times the sum of pixels: its gradient is WEIGHT everywhere."""

    def logits(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return WEIGHT * x.sum((1, 2, 3))[:, None]


def problem(target: int = 1, region: torch.Tensor | None = None) -> Problem:
    x = torch.linspace(-0.5, 0.5, 72).view(2, 1, 6, 6)
    noise = SeededNoise(0, ["a", "b"])
    return Problem(x, torch.full((2,), target), gaussian.denoiser(), LinearClassifier(), noise, region)


def settings(method: str = "fastdime-nomask", **changes: object) -> GuidedSettings:
    made = settings_for(method, **({"tau": 8, "steps": 50, "l1": 0.0} | changes))
    assert isinstance(made, GuidedSettings)
    return made


@torch.no_grad()
def watched(made: GuidedSettings, case: Problem, scale: float = 2.0) -> tuple[torch.Tensor, list[Event]]:
    events: list[Event] = []
    return guided(case, made, scale, events.append).x_cf, events


def test_without_guidance_it_is_the_plain_chain() -> None:
    case = problem()
    result, _ = watched(settings(guided_steps=0), case)
    chain = case.denoiser.respaced(50)
    x_t = sch.q_sample(chain.schedule, case.x, 7, case.noise.draw(case.x, "start"))
    plain = ancestral(chain, x_t, range(7, -1, -1), case.part("pass", 1))
    torch.testing.assert_close(result, plain)


@pytest.mark.parametrize("target", [0, 1])
def test_each_step_moves_the_mean_by_variance_times_gradient(target: int) -> None:
    case, made = problem(target), settings()
    _, events = watched(made, case)
    chain = case.denoiser.respaced(50)
    for event in events:
        plain = chain.posterior(event.x_t, event.t).mean
        noise = case.part("pass", 1).draw(case.x, "step", event.t)
        spread = chain.schedule.posterior_variance[event.t] ** 0.5 if event.t else 0.0
        push = (1 if target else -1) * 2.0 * WEIGHT
        variance = float(sch.np.exp(chain.schedule.posterior_log_variance[event.t]))
        torch.testing.assert_close(event.x_next, plain + variance * push + spread * noise, atol=1e-5, rtol=0)


def test_the_gradient_is_taken_on_the_current_denoised_image() -> None:
    _, events = watched(settings(), problem())
    assert all(torch.equal(event.judged, event.x0_hat) for event in events)
    _, late = watched(settings(gradient_image="previous"), problem())
    assert torch.equal(late[0].judged, problem().x)
    assert all(torch.equal(late[i].judged, late[i - 1].x0_hat) for i in range(1, len(late)))


def test_the_surroundings_are_pasted_at_the_level_of_the_state() -> None:
    region = torch.zeros(2, 1, 6, 6, dtype=torch.bool)
    region[:, :, :3] = True
    case = problem(region=region)
    result, events = watched(settings(), case)
    chain = case.denoiser.respaced(50).schedule
    outside = ~region
    for event in events:
        if event.t == 0:
            assert torch.equal(event.x_next[outside], case.x[outside])
            continue
        noise = case.part("pass", 1).draw(case.x, "paste", event.t)
        around = sch.q_sample(chain, case.x, event.t - 1, noise)
        assert torch.equal(event.x_next[outside], around[outside])
    assert torch.equal(result[outside], case.x[outside])


def test_the_start_is_drawn_at_the_level_of_the_first_step() -> None:
    case = problem()
    chain, noise = case.denoiser.respaced(50).schedule, case.noise.draw(case.x, "start")
    _, events = watched(settings(), case)
    assert torch.equal(events[0].x_t, sch.q_sample(chain, case.x, 7, noise))
    _, above = watched(settings(start_above=True), case)
    assert torch.equal(above[0].x_t, sch.q_sample(chain, case.x, 8, noise))


def test_l1_pulls_the_clean_image_back() -> None:
    case = problem()
    free, _ = watched(settings(), case)
    held, _ = watched(settings(l1=20.0), case)
    assert (held - case.x).abs().mean() < (free - case.x).abs().mean()


@pytest.mark.parametrize("l1", [0.0, 5.0])
def test_going_through_a_linear_denoiser_scales_the_gradient(l1: float) -> None:
    """The denoiser is linear: at x_t every loss has its gain times the gradient at the denoised image."""
    case = problem()
    made = settings("gmd-nomask", l1=l1)
    chain = case.denoiser.respaced(50)
    for event in watched(made, case, 1.0)[1]:
        alpha_bar = torch.tensor(chain.schedule.alpha_bar[event.t])
        ends = [gaussian.expected_clean(torch.full((1,), value), alpha_bar) for value in (0.0, 1.0)]
        gain = (ends[1] - ends[0]).item()
        at_clean = -WEIGHT + l1 * (event.x0_hat - case.x).sign()
        plain = step_down(chain.posterior(event.x_t, event.t), event.t, case.part("pass", 1))
        variance = float(sch.np.exp(chain.schedule.posterior_log_variance[event.t]))
        torch.testing.assert_close(event.x_next, plain - variance * gain * at_clean, atol=1e-5, rtol=0)


def test_a_timed_classifier_is_told_that_the_image_is_clean() -> None:
    told: list[int] = []

    class Timed(LinearClassifier):
        def logits(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            told.append(int(time[0]))
            return super().logits(x, time)

    case = replace(problem(), classifier=Timed())
    watched(settings(), case)
    assert set(told) == {0}
    told.clear()
    watched(settings(classifier_time="level"), case)
    assert told == case.denoiser.respaced(50).schedule.network_times[7::-1].tolist()


def test_dime_judges_an_image_generated_from_the_state() -> None:
    case = problem()
    _, events = watched(settings("dime", tau=4), case)
    chain = case.denoiser.respaced(50)
    for event in events:
        noise = case.part("pass", 1).at("nested", event.t)
        generated = ancestral(chain, event.x_t, range(event.t, -1, -1), noise)
        torch.testing.assert_close(event.judged, generated)


def test_the_second_pass_changes_only_what_the_first_did() -> None:
    case = problem()
    made = settings("fastdime-2", dilation=1, threshold=0.9)
    events: list[Event] = []
    with torch.no_grad():
        edit = guided(case, made, 2.0, events.append)
    assert len(events) == 16
    assert torch.equal(events[0].x_t, events[8].x_t)
    assert 0 < edit.mask.float().mean() < 0.5
    assert torch.equal(edit.x_cf[~edit.mask], case.x[~edit.mask])
    assert torch.equal(events[-1].mask, edit.mask)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tau": 51}, "tau: expected at most 50"),
        ({"tau": 50, "start_above": True}, "tau: expected at most 49"),
        ({"tau": 3, "last_level": 3}, "last_level: expected below tau"),
        ({"steps": 2000}, "steps: expected between 1 and 1000"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(changes: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        watched(settings(**changes), problem())


def test_inpainting_needs_no_longer_chain_than_there_is() -> None:
    with pytest.raises(InputError, match="inpainting steps: expected at most 50"):
        watched(settings("fastdime-repaint", inpaint_steps=51), problem())
