"""ACE: attack, masks and post-processing of every variant in ace.npz, from recorded noise."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fastdime.counterfactuals.ace import (
    attack,
    attack_gradient,
    attack_step,
    distance_gradient,
    refine,
)
from fastdime.counterfactuals.loop import Edit, chain_for_inpainting, repaint
from fastdime.counterfactuals.masks import difference_map
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import AceSettings, GuidedSettings
from fastdime.counterfactuals.step import Event
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.sampling import ancestral
from fastdime.noise import Key, Noise, SeededNoise
from support.recordings import (
    DERIVED,
    TOLERANCE,
    Recording,
    Replay,
    TinyClassifier,
    celeba_denoiser,
    close,
    known,
    logits_of,
    replay,
)

RECORDING = Recording("ace")
VARIANTS = [name for name in RECORDING.groups() if name != "post"]
SIGN = 1e-5  # the sign of a gradient this small, beside the largest of its image, is a matter of rounding


def wide(image: Tensor) -> Tensor:
    """From the program's [0, 1] to our [-1, 1]."""
    return 2 * image - 1


def narrow(image: Tensor) -> Tensor:
    return (image + 1) / 2


def settings_of(variant: str) -> AceSettings:
    alone = variant == "post"  # no attack
    l1, l2 = (0.0, 0.0) if alone else RECORDING.array(f"{variant}/w1_w2").tolist()
    settings = settings_for(
        "ace-l2" if variant.startswith("ace_l2") else "ace-l1",
        "celeba",
        steps=int(RECORDING.number("respaced")),
        noise_steps=int(RECORDING.number("n_steps")),
        iterations=int(RECORDING.number("iters")),
        attack_step=RECORDING.number("step"),
        epsilon=RECORDING.number("eps"),
        dilation=int(RECORDING.number("dilation")),
        threshold=RECORDING.number("post/thr" if alone else "thr"),
        l1=l1,
        l2=l2,
        distance_schedule="linear" if variant.endswith("linsched") else "none",
    )
    assert isinstance(settings, AceSettings)
    return settings


def attack_order(settings: AceSettings) -> list[Key]:
    order: list[Key] = []
    for i in range(settings.iterations):
        place = ("attempt", 0, "attack", i)
        order += [(*place, "start"), *[(*place, "step", t) for t in range(settings.noise_steps - 1, 0, -1)]]
    return order


def inpaint_order(settings: AceSettings) -> list[Key]:
    place = ("attempt", 0, "inpaint")
    order: list[Key] = [(*place, "start")]
    for t in range(settings.noise_steps - 1, -1, -1):
        order.append((*place, "paste", t))
        if t > 0:
            order.append((*place, "step", t))
    return order


def problem_for(settings: AceSettings, noise: Noise) -> tuple[Problem, Denoiser]:
    problem = Problem(
        wide(RECORDING.tensor("x")),
        RECORDING.tensor("target").long(),
        celeba_denoiser(RECORDING),
        TinyClassifier(RECORDING),
        noise,
    )
    return problem, chain_for_inpainting(problem.denoiser, settings.steps, settings.noise_steps)


def test_every_variant_and_array_of_the_file_is_known() -> None:
    known(VARIANTS, "ace_l[12](_linsched)?")
    names = "x target T respaced n_steps iters step eps dilation thr logits_x joint_deterministic_logits"
    assert not RECORDING.left_over(names)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str) -> None:
    settings = settings_of(variant)
    draws = RECORDING.tensor(f"{variant}/noise")
    noise = replay(attack_order(settings) + inpaint_order(settings), draws)
    problem, chain = problem_for(settings, noise)
    check_attack(variant, settings, problem, chain)
    before = wide(RECORDING.tensor(f"{variant}/pre_explanation"))
    edit = refine(problem, chain, settings, before)
    assert not noise.left
    close(narrow(edit.x_cf), RECORDING.tensor(f"{variant}/explanation"))
    assert torch.equal(~edit.mask, RECORDING.tensor(f"{variant}/keepmask"))
    close(difference_map(problem.x, before), RECORDING.tensor(f"{variant}/diffmap"))
    close(logits_of(RECORDING, before), RECORDING.tensor(f"{variant}/pe_logits"), DERIVED)
    close(logits_of(RECORDING, edit.x_cf), RECORDING.tensor(f"{variant}/ce_logits"), DERIVED)
    start = sch.q_sample(chain.schedule, before, settings.noise_steps - 1, draws[len(attack_order(settings))])
    close(narrow(start).clamp(0, 1), RECORDING.tensor(f"{variant}/noisy_start"))
    assert not RECORDING.unseen(f"{variant}/")


def close_gradient(gradient: Tensor, recorded: Tensor) -> None:
    """To the tolerance, and to a thousandth of the largest: a small gradient has a sign all the same."""
    close(gradient, recorded, min(TOLERANCE, recorded.abs().max().item() / 1000))


def check_attack(variant: str, settings: AceSettings, problem: Problem, chain: Denoiser) -> None:
    """Each gradient at the recorded iterate, and the next iterate from it."""
    iterates = [wide(image) for image in RECORDING.tensor(f"{variant}/x_adv_iter")]
    iterates.append(wide(RECORDING.tensor(f"{variant}/pre_explanation")))
    assert torch.equal(iterates[0], problem.x)
    for i in range(settings.iterations):
        toward, _ = attack_gradient(problem, chain, settings, iterates[i], problem.part("attack", i))
        distance = distance_gradient(settings, iterates[i], problem.x, i)
        # The recorded gradients are with respect to an image of half the width.
        close_gradient(2 * toward, RECORDING.tensor(f"{variant}/grad_class")[i])
        close_gradient(2 * distance, RECORDING.tensor(f"{variant}/grad_dist")[i])
        moved = attack_step(settings, iterates[i], problem.x, toward + distance)
        sure = (toward + distance).abs() >= SIGN * toward.abs().amax((1, 2, 3), keepdim=True)
        assert sure.float().mean() > 0.9
        close(moved[sure], iterates[i + 1][sure])


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_attack(variant: str) -> None:
    """Here the iterates are our own, so a pixel that comes back to its input does so to rounding only.

    The distance then pulls it one way or the other; a wrong attack differs nearly everywhere.
    """
    settings = settings_of(variant)
    after = inpaint_order(settings)
    noise = replay(attack_order(settings) + after, RECORDING.tensor(f"{variant}/noise"))
    problem, chain = problem_for(settings, noise)
    image = attack(problem, chain, settings, 1.0)
    assert noise.left == set(after)
    apart = (narrow(image) - RECORDING.tensor(f"{variant}/pre_explanation")).abs() > TOLERANCE
    assert apart.float().mean() < 0.05


def test_limits_of_the_change() -> None:
    """On the [0, 1] scale, as the step; the recorded images may be too far from the limits to reach them."""
    settings = settings_of(VARIANTS[0]).model_copy(update={"attack_step": 0.01, "epsilon": 0.025})
    for first, steps in ((0.5, (0.51, 0.52, 0.525, 0.525)), (0.985, (0.995, 1.0, 1.0))):
        x = wide(torch.full_like(RECORDING.tensor("x"), first))
        image = x
        for reached in steps:
            image = attack_step(settings, image, x, -torch.ones_like(x))
            close(narrow(image), torch.full_like(x, reached))


@torch.no_grad()
def test_the_scale_weighs_the_class_against_the_distance() -> None:
    """With a small one even a weak distance pulls back in one step what has left the input in the other."""
    changes = {"iterations": 2, "attack_step": 0.01, "epsilon": 1.0, "l2": 0.0, "distance_schedule": "none"}
    settings = settings_of(VARIANTS[0]).model_copy(update=changes)
    ids = [str(row) for row in range(len(RECORDING.tensor("x")))]
    problem, chain = problem_for(settings, SeededNoise(0, ids))
    problem = replace(problem, x=problem.x / 2)
    toward, _ = attack_gradient(problem, chain, settings, problem.x, problem.part("attack", 0))
    weak = settings.model_copy(update={"l1": toward.abs().max().item() / 10_000})
    states: list[Event] = []
    image = attack(problem, chain, weak, 1e-6, states.append)
    assert (states[0].x_next != problem.x).float().mean() > 0.9
    close(image, problem.x)
    assert not torch.allclose(attack(problem, chain, weak, 1.0), problem.x)


@pytest.mark.parametrize("variant", VARIANTS)
def test_distance_schedules(variant: str) -> None:
    """The step schedule is not recorded: nothing up to the middle of the attack, all of it after."""
    settings = settings_of(variant)
    plain = settings.model_copy(update={"distance_schedule": "none"})
    late = settings.model_copy(update={"distance_schedule": "step"})
    x, image = RECORDING.tensor("x"), RECORDING.tensor(f"{variant}/pre_explanation")
    full = distance_gradient(plain, image, x, 0)
    for i in range(settings.iterations):
        share = 0.0 if i <= settings.iterations // 2 else 1.0
        assert torch.equal(distance_gradient(late, image, x, i), share * full)
        assert torch.equal(distance_gradient(plain, image, x, i), full)


@torch.no_grad()
def test_post_processing_alone() -> None:
    """Also as what follows FastDiME without mask: the published ablation runs this same loop."""
    if "post" not in RECORDING.groups():
        return
    settings = settings_of("post")
    before = wide(RECORDING.tensor("post/pre_explanation"))
    for after in (after_ace, after_fastdime):
        noise = replay(inpaint_order(settings), RECORDING.tensor("post/noise"))
        edit = after(settings, noise, before)
        assert not noise.left
        close(narrow(edit.x_cf).clamp(0, 1), RECORDING.tensor("post/explanation"))
        assert torch.equal(~edit.mask, RECORDING.tensor("post/keepmask"))
    assert not RECORDING.unseen("post/")


def after_ace(settings: AceSettings, noise: Replay, before: Tensor) -> Edit:
    problem, chain = problem_for(settings, noise)
    edit = refine(problem, chain, settings, before)
    assert edit.x_cf.abs().max() <= 1
    return edit


def after_fastdime(settings: AceSettings, noise: Replay, before: Tensor) -> Edit:
    same = settings_for(
        "fastdime-repaint",
        "celeba",
        inpaint_chain=settings.steps,
        inpaint_steps=settings.noise_steps,
        inpaint_dilation=settings.dilation,
        threshold=settings.threshold,
    )
    assert isinstance(same, GuidedSettings)
    problem, _ = problem_for(settings, noise)
    return repaint(problem, same, Edit(before, problem.allowed()))


@torch.no_grad()
def test_prediction_and_target() -> None:
    logits = logits_of(RECORDING, wide(RECORDING.tensor("x")))
    close(logits, RECORDING.tensor("logits_x"), DERIVED)
    assert torch.equal((logits <= 0).float(), RECORDING.tensor("target"))


@torch.no_grad()
def test_classifier_after_the_filter_without_noise() -> None:
    settings = settings_of(VARIANTS[0])
    _, chain = problem_for(settings, Replay({}))
    x = wide(RECORDING.tensor("x"))
    first = settings.noise_steps - 1
    quiet = sch.q_sample(chain.schedule, x, first, torch.zeros_like(x))
    filtered = ancestral(chain, quiet, range(first, -1, -1), None)
    close(logits_of(RECORDING, filtered), RECORDING.tensor("joint_deterministic_logits"), DERIVED)
