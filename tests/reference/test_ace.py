"""ACE: attack, masks and post-processing of every variant in ace.npz, from recorded noise."""

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
from fastdime.counterfactuals.loop import chain_for_inpainting
from fastdime.counterfactuals.masks import difference_map
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import AceSettings
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.sampling import ancestral
from fastdime.noise import Key
from support.recordings import (
    NETWORK_ARRAYS,
    Recording,
    Replay,
    TinyClassifier,
    celeba_denoiser,
    close,
    replay,
)

RECORDING = Recording("ace")
VARIANTS = [name for name in RECORDING.groups() if name != "post"]
METHOD = {"ace_l1": "ace-l1", "ace_l2": "ace-l2", "ace_l1_linsched": "ace-l1", "ace_l2_linsched": "ace-l2"}
LEAST = 1e-6  # a gradient below this may have either sign: rounding decides


def wide(image: Tensor) -> Tensor:
    """From the program's [0, 1] to our [-1, 1]."""
    return 2 * image - 1


def narrow(image: Tensor) -> Tensor:
    return (image + 1) / 2


def settings_of(variant: str, **changes: float) -> AceSettings:
    l1, l2 = RECORDING.array(f"{variant}/w1_w2").tolist() if f"{variant}/w1_w2" in RECORDING else (0.0, 0.0)
    settings = settings_for(
        METHOD.get(variant, "ace-l1"),
        "celeba",
        steps=int(RECORDING.number("respaced")),
        noise_steps=int(RECORDING.number("n_steps")),
        iterations=int(RECORDING.number("iters")),
        attack_step=RECORDING.number("step"),
        epsilon=RECORDING.number("eps"),
        dilation=int(RECORDING.number("dilation")),
        threshold=changes.get("threshold", RECORDING.number("thr")),
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


def problem_for(settings: AceSettings, noise: Replay) -> tuple[Problem, Denoiser]:
    problem = Problem(
        wide(RECORDING.tensor("x")),
        RECORDING.tensor("target").long(),
        celeba_denoiser(RECORDING),
        TinyClassifier(RECORDING),
        noise,
    )
    return problem, chain_for_inpainting(problem.denoiser, settings.steps, settings.noise_steps)


def logits_of(image: Tensor) -> Tensor:
    return TinyClassifier(RECORDING).logits(image, torch.zeros(len(image)))[:, 0]


def test_every_variant_of_the_file_is_known() -> None:
    assert VARIANTS
    assert set(VARIANTS) <= set(METHOD)


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
    close(logits_of(before), RECORDING.tensor(f"{variant}/pe_logits"))
    close(logits_of(edit.x_cf), RECORDING.tensor(f"{variant}/ce_logits"), 1e-3)
    start = sch.q_sample(chain.schedule, before, settings.noise_steps - 1, draws[len(attack_order(settings))])
    close_noisy(start, RECORDING.tensor(f"{variant}/noisy_start"))
    assert not RECORDING.unseen(f"{variant}/")


def close_noisy(start: Tensor, recorded: Tensor) -> None:
    """Recorded as the program shows it: on the [0, 1] scale, clamped or not."""
    shown = narrow(start)
    assert min((shown - recorded).abs().max(), (shown.clamp(0, 1) - recorded).abs().max()) < 1e-4


def check_attack(variant: str, settings: AceSettings, problem: Problem, chain: Denoiser) -> None:
    """Each gradient at the recorded iterate, and the next iterate from it; the sign of almost 0 is open."""
    iterates = [wide(image) for image in RECORDING.tensor(f"{variant}/x_adv_iter")]
    iterates.append(wide(RECORDING.tensor(f"{variant}/pre_explanation")))
    for i in range(settings.iterations):
        toward, _ = attack_gradient(problem, chain, settings, iterates[i], problem.part("attack", i))
        distance = distance_gradient(settings, iterates[i], problem.x, i)
        # The recorded gradients are with respect to an image of half the width.
        close(2 * toward, RECORDING.tensor(f"{variant}/grad_class")[i])
        close(2 * distance, RECORDING.tensor(f"{variant}/grad_dist")[i])
        moved = attack_step(settings, iterates[i], problem.x, toward + distance)
        sure = (toward + distance).abs() > LEAST
        assert sure.float().mean() > 0.9
        close(moved[sure], iterates[i + 1][sure])


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_attack_agrees_but_for_signs_of_zero(variant: str) -> None:
    settings = settings_of(variant)
    noise = replay(attack_order(settings) + inpaint_order(settings), RECORDING.tensor(f"{variant}/noise"))
    problem, chain = problem_for(settings, noise)
    image = attack(problem, chain, settings, 1.0)
    off = (narrow(image) - RECORDING.tensor(f"{variant}/pre_explanation")).abs() > 1e-4
    assert off.float().mean() < 0.01


@torch.no_grad()
def test_post_processing_alone() -> None:
    settings = settings_of("post", threshold=RECORDING.number("post/thr"))
    noise = replay(inpaint_order(settings), RECORDING.tensor("post/noise"))
    problem, chain = problem_for(settings, noise)
    edit = refine(problem, chain, settings, wide(RECORDING.tensor("post/pre_explanation")))
    close(narrow(edit.x_cf), RECORDING.tensor("post/explanation"))
    assert torch.equal(~edit.mask, RECORDING.tensor("post/keepmask"))
    assert not RECORDING.unseen("post/")


@torch.no_grad()
def test_classifier_after_the_filter_without_noise() -> None:
    settings = settings_of(VARIANTS[0])
    _, chain = problem_for(settings, Replay({}))
    x = wide(RECORDING.tensor("x"))
    close(logits_of(x), RECORDING.tensor("logits_x"))
    levels = range(settings.noise_steps - 1, -1, -1)
    quiet = sch.q_sample(chain.schedule, x, settings.noise_steps - 1, torch.zeros_like(x))
    close(logits_of(ancestral(chain, quiet, levels, None)), RECORDING.tensor("joint_deterministic_logits"))


def test_no_array_is_left_over() -> None:
    known = {"x", "target", "T", "respaced", "n_steps", "iters", "step", "eps", "dilation", "thr"}
    known |= {"logits_x", "joint_deterministic_logits"}
    assert {key for key in RECORDING.arrays if "/" not in key} <= known | NETWORK_ARRAYS
