"""The medical sampler: every variant in medical.npz, from recorded noise."""

import numpy as np
import pytest
import torch

from fastdime.counterfactuals.guidance import class_loss
from fastdime.counterfactuals.loop import GuidedChain, chain_of, guided, mask_rule
from fastdime.counterfactuals.masks import FixedMask, difference_mask
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.noise import Key
from fastdime.scores import probabilities
from support.recordings import NETWORK_ARRAYS, Recording, Replay, TinyClassifier, TinyDenoiser, close, replay

RECORDING = Recording("medical")
VARIANTS = [name for name in RECORDING.groups() if not name.startswith("sched")]
METHOD = {
    "dime": "dime",
    "fastdime": "fastdime",
    "fastdime_T1000": "fastdime",
    "fastdime_nomask": "fastdime-nomask",
    "fixedmask": "fastdime-nomask",
}


def settings_of(variant: str) -> GuidedSettings:
    length, start, start_tau, _ = RECORDING.array(f"{variant}/T_start_starttau_rescale").tolist()
    settings = settings_for(
        METHOD[variant],
        "medical",
        steps=length,
        tau=start,
        mask_from=start_tau,
        strength=RECORDING.number("start_scale"),
        dilation=int(RECORDING.number("dilation")),
        threshold=RECORDING.number("thr"),
    )
    assert isinstance(settings, GuidedSettings)
    return settings


def denoiser_of(variant: str) -> Denoiser:
    """The network was trained on 1000 steps; a shorter chain is built anew, with scaled or plain times."""
    length, _, _, rescaled = RECORDING.array(f"{variant}/T_start_starttau_rescale").tolist()
    schedule = sch.linear(1000 if rescaled else length)
    return Denoiser(TinyDenoiser(RECORDING), schedule, variance="fixed_large")


def order_of(variant: str, settings: GuidedSettings) -> list[Key]:
    order: list[Key] = [("start",)]
    place = ("attempt", 0, "pass", 1)
    for t in range(settings.tau - 1, 0, -1):
        if settings.gradient == "nested":
            order += [(*place, "nested", t, "step", s) for s in range(t - 1, 1, -1)]
        if t > 1:
            order.append((*place, "step", t))
        if variant == "fixedmask" or (settings.mask == "difference" and t <= settings.mask_from):
            order.append((*place, "paste", t))
    return order


def problem_for(variant: str, noise: Replay) -> Problem:
    target = RECORDING.tensor("target")[:, 0].long()
    classifier = TinyClassifier(RECORDING, "tclf_")
    return Problem(RECORDING.tensor("x0"), target, denoiser_of(variant), classifier, noise)


def test_every_variant_of_the_file_is_known() -> None:
    assert VARIANTS
    assert set(VARIANTS) <= set(METHOD)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str) -> None:
    settings = settings_of(variant)
    noise = replay(order_of(variant, settings), RECORDING.tensor(f"{variant}/noise"))
    problem = problem_for(variant, noise)
    events: list[Event] = []
    chain = chain_of(problem.denoiser, settings)
    run = GuidedChain(problem, chain, settings, settings.scales[0], problem.part("pass", 1), events.append)
    rule = FixedMask(~RECORDING.tensor("fixed_keepmask")) if variant == "fixedmask" else mask_rule(settings)
    edit = run.run(rule, noise.draw(problem.x, "start"))
    assert not noise.left
    close(events[0].x_t, RECORDING.tensor(f"{variant}/z_init"))
    close(torch.stack([event.clean for event in events]), RECORDING.tensor(f"{variant}/xd_out_steps"))
    close(torch.stack([event.x_next for event in events]), RECORDING.tensor(f"{variant}/z_out_steps"))
    close(edit.x_cf, RECORDING.tensor(f"{variant}/final"))
    if f"{variant}/keepmask" in RECORDING:
        masks = torch.stack([event.mask for event in events if event.mask is not None])
        assert torch.equal(~masks, RECORDING.tensor(f"{variant}/keepmask"))
    check_losses(variant, settings, problem, chain, events)
    final = problem.classifier.logits(edit.x_cf, torch.zeros(len(edit.x_cf)))
    close(probabilities(final)[:, 1], RECORDING.tensor(f"{variant}/prob_final_t0"))
    if variant != "fixedmask":
        same = guided(problem, settings, settings.scales[0])
        assert torch.equal(same.x_cf, edit.x_cf)
    assert not RECORDING.unseen(f"{variant}/")


def check_losses(
    variant: str, settings: GuidedSettings, problem: Problem, chain: Denoiser, events: list[Event]
) -> None:
    """Probability, losses and the largest gradient of each step."""
    logits = [problem.classifier.logits(event.judged, chain.times(event.t, event.judged)) for event in events]
    probability = torch.stack([probabilities(value)[:, 1] for value in logits])
    close(probability, RECORDING.tensor(f"{variant}/prob_steps"))
    loss = torch.stack([class_loss(value, problem.target, settings.class_loss) for value in logits])
    close(loss, RECORDING.tensor(f"{variant}/loss_Lc"), 1e-3)  # a logit magnifies the error of an image
    denoised = torch.stack([event.x0_hat for event in events]) - problem.x
    kept = torch.stack([event.clean for event in events]) - problem.x if variant == "dime" else denoised
    close(denoised.abs().mean((2, 3, 4)), RECORDING.tensor(f"{variant}/loss_Denoised_L1"))
    close(kept.abs().mean((2, 3, 4)), RECORDING.tensor(f"{variant}/loss_L1"))
    gradient = torch.stack([event.class_gradient for event in events])
    gradient = (gradient + settings.l1 / problem.x[0].numel() * kept.sign()) / len(problem.x)
    close(gradient.amax((2, 3, 4)), RECORDING.tensor(f"{variant}/max_grad_steps"))


def test_fixed_mask() -> None:
    mask = difference_mask(
        RECORDING.tensor("x0"),
        RECORDING.tensor("fastdime_nomask/final"),
        int(RECORDING.number("dilation")),
        RECORDING.number("thr"),
    )
    assert torch.equal(~mask, RECORDING.tensor("fixed_keepmask"))


@pytest.mark.parametrize("name", [name for name in RECORDING.groups() if name.startswith("sched")])
def test_schedule(name: str) -> None:
    schedule = sch.rebuild(sch.linear(1000), int(name.removeprefix("sched")))
    np.testing.assert_allclose(schedule.betas, RECORDING.array(f"{name}/beta"), atol=1e-6)
    np.testing.assert_allclose(schedule.alpha_bar, RECORDING.array(f"{name}/alpha_bar"), atol=1e-5)
    assert not RECORDING.unseen(f"{name}/")


def test_targets_and_constants() -> None:
    assert torch.equal(RECORDING.tensor("target")[:, 0].long(), 1 - RECORDING.tensor("label"))
    constants = [int(RECORDING.number(name)) for name in ("T", "start", "start_tau")]
    assert constants == RECORDING.array("fastdime/T_start_starttau_rescale").tolist()[:3]


def test_no_array_is_left_over() -> None:
    known = {"x0", "label", "target", "T", "start", "start_tau", "dilation", "thr", "start_scale"}
    known |= {"fixed_keepmask"}
    assert {key for key in RECORDING.arrays if "/" not in key} <= known | NETWORK_ARRAYS
