"""The medical sampler: every variant in medical.npz, from recorded noise."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fastdime.counterfactuals.guidance import class_loss
from fastdime.counterfactuals.ladder import climb
from fastdime.counterfactuals.loop import Edit, GuidedChain, chain_of, guided, mask_rule
from fastdime.counterfactuals.masks import FixedMask, difference_mask
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.noise import Key
from fastdime.pixels import to_grid
from fastdime.scores import probabilities
from support.recordings import DERIVED, Recording, Replay, TinyClassifier, TinyDenoiser, close, known, replay

RECORDING = Recording("medical")
GROUPS = RECORDING.groups()
SCHEDULES = [name for name in GROUPS if re.fullmatch("sched[0-9]+", name)]
VARIANTS = [name for name in GROUPS if name not in SCHEDULES]
METHOD = {
    "dime": "dime",
    "fastdime": "fastdime",
    "fastdime_nomask": "fastdime-nomask",
    "fixedmask": "fastdime-nomask",
}
OTHER_CHAIN = "_T[0-9]+"  # ends the name of a variant that does not run on the chain of the others
TRAINED = 1000  # length of the chain of the network


def method_of(variant: str) -> str:
    return METHOD[re.sub(f"{OTHER_CHAIN}$", "", variant)]


def chain_numbers(variant: str) -> list[int]:
    return RECORDING.array(f"{variant}/T_start_starttau_rescale").tolist()


def settings_of(variant: str, method: str = "", **changes: str) -> GuidedSettings:
    length, start, start_tau, _ = chain_numbers(variant)
    settings = settings_for(
        method or method_of(variant),
        "medical",
        steps=length,
        tau=start,
        mask_from=start_tau,
        strength=RECORDING.number("start_scale"),
        dilation=int(RECORDING.number("dilation")),
        threshold=RECORDING.number("thr"),
        **changes,
    )
    assert isinstance(settings, GuidedSettings)
    return settings


def denoiser_of(variant: str) -> Denoiser:
    """A chain of another length than the network was trained on is built anew, with scaled or plain times."""
    length, _, _, rescaled = chain_numbers(variant)
    schedule = sch.linear(TRAINED if rescaled else length)
    return Denoiser(TinyDenoiser(RECORDING), schedule, variance="fixed_large")


def order_of(variant: str, settings: GuidedSettings, number: int = 1) -> list[Key]:
    """Start; then for each level the inner chain's noise, step noise and paste noise; level 1 is quiet."""
    order: list[Key] = [("start",) if number == 1 else ("start", number)]
    place = ("attempt", 0, "pass", number)
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


def test_every_variant_and_array_of_the_file_is_known() -> None:
    known(VARIANTS, f"fixedmask|(dime|fastdime|fastdime_nomask)({OTHER_CHAIN})?")
    names = "x0 label target T start start_tau dilation thr start_scale fixed_keepmask"
    assert not RECORDING.left_over(names)


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
    check_states(variant, events)
    check_losses(variant, settings, problem, chain, events)
    close(edit.x_cf, RECORDING.tensor(f"{variant}/final"))
    final = probabilities(problem.classifier.logits(edit.x_cf, torch.zeros(len(edit.x_cf))))
    close(final[:, 1], RECORDING.tensor(f"{variant}/prob_final_t0"), DERIVED)
    if variant != "fixedmask":
        check_whole_method(problem, settings, edit, final)
    assert not RECORDING.unseen(f"{variant}/")


def check_whole_method(problem: Problem, settings: GuidedSettings, edit: Edit, final: Tensor) -> None:
    """The method as users run it does the same to every image, and judges the same floats."""
    attempts: list[tuple[Tensor, float, Edit]] = []
    result = climb(problem, settings, inspect=lambda *attempt: attempts.append(attempt))
    assert torch.equal(attempts[0][2].x_cf, edit.x_cf)
    assert torch.equal(result.p_after, final.gather(1, problem.target[:, None])[:, 0])
    # The target is not the label, whatever is predicted: an image that is in it already is pushed too.
    met = replace(problem, target=result.predicted)
    climb(met, settings, inspect=lambda *attempt: attempts.append(attempt))
    assert [rows.tolist() for rows, _, _ in attempts] == 2 * [list(range(len(problem.x)))]


def check_states(variant: str, events: list[Event]) -> None:
    close(events[0].x_t, RECORDING.tensor(f"{variant}/z_init"))
    close(torch.stack([event.clean for event in events]), RECORDING.tensor(f"{variant}/xd_out_steps"))
    close(torch.stack([event.x_next for event in events]), RECORDING.tensor(f"{variant}/z_out_steps"))
    masks = [event.mask for event in events if event.mask is not None]
    if masks and variant != "fixedmask":
        assert torch.equal(~torch.stack(masks), RECORDING.tensor(f"{variant}/keepmask"))


def check_losses(
    variant: str, settings: GuidedSettings, problem: Problem, chain: Denoiser, events: list[Event]
) -> None:
    """Probability, losses and the largest gradient of each step."""
    logits = [problem.classifier.logits(event.judged, chain.times(event.t, event.judged)) for event in events]
    probability = torch.stack([probabilities(value)[:, 1] for value in logits])
    close(probability, RECORDING.tensor(f"{variant}/prob_steps"), DERIVED)
    loss = torch.stack([class_loss(value, problem.target, settings.class_loss) for value in logits])
    close(loss, RECORDING.tensor(f"{variant}/loss_Lc"), DERIVED)
    denoised = torch.stack([event.x0_hat for event in events]) - problem.x
    nested = settings.gradient == "nested"
    kept = torch.stack([event.clean for event in events]) - problem.x if nested else denoised
    close(denoised.abs().mean((2, 3, 4)), RECORDING.tensor(f"{variant}/loss_Denoised_L1"))
    close(kept.abs().mean((2, 3, 4)), RECORDING.tensor(f"{variant}/loss_L1"))
    gradient = torch.stack([event.class_gradient for event in events])
    gradient = (gradient + settings.l1 / problem.x[0].numel() * kept.sign()) / len(problem.x)
    close(gradient.amax((2, 3, 4)), RECORDING.tensor(f"{variant}/max_grad_steps"))


def mask_from(image: Tensor) -> Tensor:
    dilation, threshold = int(RECORDING.number("dilation")), RECORDING.number("thr")
    return difference_mask(RECORDING.tensor("x0"), image, dilation, threshold)


@torch.no_grad()
@pytest.mark.parametrize("image", ["float", "saved"])
def test_two_passes(image: str) -> None:
    """The second pass is the recorded one if the mask is made as there; the program makes it from a file."""
    if not {"fastdime_nomask", "fixedmask"} <= set(GROUPS):
        return
    changes = {"second_mask": "float"} if image == "float" else {}
    settings = settings_of("fixedmask", "fastdime-2", **changes)
    order = order_of("fastdime_nomask", settings) + order_of("fixedmask", settings, number=2)
    draws = [draw for name in ("fastdime_nomask", "fixedmask") for draw in RECORDING.tensor(f"{name}/noise")]
    noise = replay(order, draws)
    edit = guided(problem_for("fixedmask", noise), settings, settings.scales[0])
    assert not noise.left
    first = RECORDING.tensor("fastdime_nomask/final")
    if image == "float":
        assert torch.equal(~mask_from(first), RECORDING.tensor("fixed_keepmask"))
        assert torch.equal(edit.mask, mask_from(first))
        close(edit.x_cf, RECORDING.tensor("fixedmask/final"))
    else:
        assert torch.equal(edit.mask, mask_from(to_grid(first)))


def test_schedules() -> None:
    for name in SCHEDULES:
        schedule = sch.rebuild(sch.linear(TRAINED), int(name.removeprefix("sched")))
        np.testing.assert_allclose(schedule.betas, RECORDING.array(f"{name}/beta"), rtol=1e-5)
        np.testing.assert_allclose(schedule.alpha_bar, RECORDING.array(f"{name}/alpha_bar"), atol=1e-5)
        assert not RECORDING.unseen(f"{name}/")


def test_targets_and_constants() -> None:
    assert torch.equal(RECORDING.tensor("target")[:, 0], 1.0 - RECORDING.tensor("label"))
    constants = [int(RECORDING.number(name)) for name in ("T", "start", "start_tau")]
    usual = [name for name in VARIANTS if name in METHOD]
    assert all(chain_numbers(name)[:3] == constants for name in usual)
