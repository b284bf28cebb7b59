"""The CelebA sampler: every variant in sampler.npz, from recorded noise."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fastdime.counterfactuals.gradients import Objective
from fastdime.counterfactuals.guidance import class_gradient, l1_gradient, l2_gradient, perceptual_gradient
from fastdime.counterfactuals.loop import Edit, guided
from fastdime.counterfactuals.masks import difference_map, difference_mask, dilate
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Estimate, Event, Step
from fastdime.noise import Noise, SeededNoise
from support.recordings import (
    DERIVED,
    METHODS,
    Recording,
    celeba_denoiser,
    celeba_orders,
    celeba_problem,
    check_inputs,
    close,
    known,
    logits_of,
    replay,
    thrown_away,
)

RECORDING = Recording("sampler")
GROUPS = RECORDING.groups()
VARIANTS = [name for name in GROUPS if name not in ("grad", "mask", "pmv")]
OPTIONS = ("perc", "logsig", "scaled", "l2", "detinner")


def published(variant: str) -> str:
    """The method in the name of a variant; the rest are options, which `opts` holds too."""
    return "_".join(part for part in variant.split("_") if part not in OPTIONS)


def settings_of(variant: str, place: str) -> GuidedSettings:
    s, use_logits, perceptual, l1, l2, scaled, dynamic, fixed = RECORDING.array(f"{place}/opts").tolist()
    method, tau = METHODS[published(variant)], int(RECORDING.number("tau"))
    settings = settings_for(
        method,
        "celeba",
        steps=int(RECORDING.number("respaced")),
        tau=tau,
        mask_from=tau - 1 - int(RECORDING.number("warmup")),
        dilation=int(RECORDING.number("dilation")),
        threshold=RECORDING.number("thr"),
        scales=(s,),
        class_loss="logit" if use_logits else "log-probability",
        perceptual=RECORDING.number("lperc") if perceptual else 0.0,
        l1=l1,
        l2=l2,
        over_signal=bool(scaled) or method == "dime",
        nested_noise="detinner" not in variant,
    )
    assert isinstance(settings, GuidedSettings)
    assert bool(dynamic) == (settings.mask == "difference" and not fixed)
    assert bool(fixed) == place.endswith("pass2")
    return settings


def problem_with(noise: Noise) -> Problem:
    return celeba_problem(RECORDING, RECORDING.tensor("x0"), RECORDING.tensor("target"), noise)


@torch.no_grad()
def run(settings: GuidedSettings, *places: str) -> tuple[Edit, list[Event]]:
    """Run a method on the recorded draws of its passes."""
    order = [key for call in celeba_orders(settings) for key in call]
    draws = [draw for place in places for draw in RECORDING.tensor(f"{place}/noise")]
    noise = replay([("start",), *order], draws)
    events: list[Event] = []
    edit = guided(problem_with(noise), settings, settings.scales[0], events.append)
    assert noise.left == thrown_away(noise.left)
    return edit, events


def check_pass(settings: GuidedSettings, place: str, events: list[Event]) -> None:
    close(torch.stack([event.x_t for event in events]), RECORDING.tensor(f"{place}/z_steps"))
    close(events[0].x_t, RECORDING.tensor(f"{place}/z_init"))
    entering = [RECORDING.tensor("x0"), *[event.clean for event in events[:-1]]]
    if settings.gradient == "nested":
        entering = [event.judged for event in events]
    close(torch.stack(entering), RECORDING.tensor(f"{place}/xd_steps"))
    masked = [event for event in events if event.mask is not None]
    if masked and not place.endswith("pass2"):
        maps = [difference_map(RECORDING.tensor("x0"), event.x0_hat) for event in masked]
        close(torch.stack(maps), RECORDING.tensor(f"{place}/diffmap"))
        masks = torch.stack([event.mask for event in masked])
        assert torch.equal(~masks, RECORDING.tensor(f"{place}/keepmask"))


def check_end(place: str, edit: Edit) -> None:
    close(edit.x_cf, RECORDING.tensor(f"{place}/final"))
    close(logits_of(RECORDING, edit.x_cf), RECORDING.tensor(f"{place}/final_logits"), DERIVED)


def test_every_variant_and_array_of_the_file_is_known() -> None:
    known([published(variant) for variant in VARIANTS], "|".join(METHODS))
    names = "x0 target pred logits_x0 timestep_map T respaced tau warmup dilation thr l1 lperc s"
    assert not RECORDING.left_over(names)


def test_prediction_and_target() -> None:
    check_inputs(RECORDING)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str) -> None:
    if f"{variant}/pass1/opts" in RECORDING:
        check_two_passes(variant)
    else:
        settings = settings_of(variant, variant)
        edit, events = run(settings, variant)
        check_pass(settings, variant, events)
        check_end(variant, edit)
    assert not RECORDING.unseen(f"{variant}/")


def check_two_passes(variant: str) -> None:
    first, second = f"{variant}/pass1", f"{variant}/pass2"
    settings = settings_of(variant, first)
    assert settings_of(variant, second) == settings
    edit, events = run(settings, first, second)
    check_pass(settings, first, events[: settings.tau])
    check_pass(settings, second, events[settings.tau :])
    check_end(second, edit)
    alone = settings.model_copy(update={"second_pass": "none"})
    check_end(first, run(alone, first)[0])
    x, image = RECORDING.tensor("x0"), RECORDING.tensor(f"{first}/final")
    close(difference_map(x, image), RECORDING.tensor(f"{variant}/fixed_diffmap"))
    mask = difference_mask(x, image, settings.dilation, settings.threshold)
    assert torch.equal(~mask, RECORDING.tensor(f"{variant}/fixed_keepmask"))
    assert torch.equal(edit.mask, mask)


def recorded_l2_weight() -> float:
    """The file does not name it, but the gradient has this length at every pixel."""
    return RECORDING.tensor("grad/dist_l2").norm(dim=1).median().item()


def test_gradients() -> None:
    problem = problem_with(SeededNoise(0, []))
    x, xd, z = problem.x, RECORDING.tensor("grad/xd"), RECORDING.tensor("grad/z")
    s, weight, signal = (RECORDING.number(name) for name in ("s", "lperc", "grad/sqrt_ab"))
    time, wanted = torch.zeros(len(x)), problem.features(x)
    l1, l2 = RECORDING.number("l1") * l1_gradient(z, x), recorded_l2_weight() * l2_gradient(z, x)
    perceptual = weight * perceptual_gradient(problem.features, xd, wanted)
    values = {
        "cls_logits": s * class_gradient(problem, xd, time, "logit"),
        "cls_logsig": s * class_gradient(problem, xd, time, "log-probability"),
        "dist_l1": l1,
        "dist_l2": l2,
        "dist_perc": perceptual,
        "dist_all_scaled": l1 + l2 + perceptual / signal,
        "perc_value": weight * (problem.features(xd) - wanted).square().flatten(1).mean(1).sum().detach(),
    }
    for name, value in values.items():
        close(value, RECORDING.tensor(f"grad/{name}"))
    assert not RECORDING.unseen("grad/")


@pytest.mark.parametrize("over_signal", [False, True])
def test_the_objective_adds_the_gradients_up(over_signal: bool) -> None:
    """As the published functions do; the signal divides all but the distances."""
    l1, lperc, s = (RECORDING.number(name) for name in ("l1", "lperc", "s"))
    weights = {"l1": l1, "l2": recorded_l2_weight(), "perceptual": lperc, "over_signal": over_signal}
    problem = problem_with(SeededNoise(0, []))
    xd, z = RECORDING.tensor("grad/xd"), RECORDING.tensor("grad/z")
    time, posterior = torch.zeros(len(z), dtype=torch.int64), problem.denoiser.posterior(z, 0)
    level = len(problem.denoiser.schedule) // 2
    step = Step(problem.x, z, xd, level, 0, time, posterior, None)
    objective = Objective(problem, problem.denoiser, settings_for("fastdime", "celeba", **weights), s)
    total = objective.gradients(step, Estimate(xd, xd), through=False).total
    signal = problem.denoiser.schedule.sqrt_alpha_bar[level] if over_signal else 1.0
    parts = {name: RECORDING.tensor(f"grad/{name}") for name in ("cls_logits", "dist_perc")}
    distances = RECORDING.tensor("grad/dist_l1") + RECORDING.tensor("grad/dist_l2")
    close(total, (parts["cls_logits"] + parts["dist_perc"]) / signal + distances)


def test_mask_function() -> None:
    x, image = RECORDING.tensor("x0"), RECORDING.tensor("grad/xd")
    dilation, threshold = int(RECORDING.number("dilation")), RECORDING.number("thr")
    close(difference_map(x, image), RECORDING.tensor("mask/diffmap"))
    close(dilate(difference_map(x, image), dilation), RECORDING.tensor("mask/dilated"))
    assert torch.equal(~difference_mask(x, image, dilation, threshold), RECORDING.tensor("mask/keep"))
    assert not RECORDING.unseen("mask/")
    # At the threshold itself a pixel may change: only what lies below is restored.
    values = dilate(difference_map(x, image), dilation)
    some = values.median().item()
    assert torch.equal(difference_mask(x, image, dilation, some), ~(values < some))
    assert (values == some).any()


@torch.no_grad()
def test_one_denoising_call() -> None:
    chain = celeba_denoiser(RECORDING).respaced(int(RECORDING.number("respaced")))
    posterior = chain.posterior(RECORDING.tensor("grad/z"), int(RECORDING.number("pmv/t")))
    close(posterior.mean, RECORDING.tensor("pmv/mean"))
    close(posterior.variance, RECORDING.tensor("pmv/variance"))
    close(posterior.log_variance, RECORDING.tensor("pmv/log_variance"))
    close(posterior.x0_hat, RECORDING.tensor("pmv/pred_xstart"))
    assert not RECORDING.unseen("pmv/")


@torch.no_grad()
def test_the_variance_fraction_is_not_limited() -> None:
    """Three times the share (v + 1) / 2, which may leave [0, 1], goes three times as far."""
    chain = celeba_denoiser(RECORDING).respaced(int(RECORDING.number("respaced")))
    t = int(RECORDING.number("pmv/t"))

    def network(x_t: Tensor, times: Tensor) -> Tensor:
        epsilon, fraction = chain.network(x_t, times).chunk(2, dim=1)
        return torch.cat([epsilon, 3 * fraction + 2], dim=1)

    posterior = replace(chain, network=network).posterior(RECORDING.tensor("grad/z"), t)
    least = chain.schedule.posterior_log_variance[t]
    close(posterior.log_variance, least + 3 * (RECORDING.tensor("pmv/log_variance") - least))
