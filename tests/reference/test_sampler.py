"""The CelebA sampler: every variant in sampler.npz, from recorded noise."""

from dataclasses import dataclass

import pytest
import torch

from fastdime.counterfactuals.gradients import Objective
from fastdime.counterfactuals.guidance import class_gradient, l1_gradient, l2_gradient, perceptual_gradient
from fastdime.counterfactuals.loop import Edit, guided
from fastdime.counterfactuals.masks import difference_map, difference_mask, dilate
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Estimate, Event, Step
from fastdime.diffusion import schedule as sch
from fastdime.noise import SeededNoise
from support.recordings import (
    NETWORK_ARRAYS,
    Recording,
    Replay,
    TinyClassifier,
    TinyFeatures,
    celeba_denoiser,
    close,
    guided_order,
    nested_order,
    replay,
    thrown_away,
)

RECORDING = Recording("sampler")
PIECES = {"grad", "mask", "pmv"}
METHOD = {
    "dime": "dime",
    "dime_perc": "dime",
    "dime_detinner_logsig": "dime",
    "fastdime_nomask": "fastdime-nomask",
    "fastdime": "fastdime",
    "fastdime_perc": "fastdime",
    "fastdime_logsig_scaled": "fastdime",
    "fastdime_l2": "fastdime",
    "fastdime2": "fastdime-2",
    "fastdime2plus": "fastdime-2+",
    "fastdime2plus_perc": "fastdime-2+",
    "gmd": "gmd",
    "gmd_nomask": "gmd-nomask",
}
VARIANTS = [name for name in RECORDING.groups() if name not in PIECES]


def settings_of(variant: str, place: str) -> GuidedSettings:
    s, use_logits, perceptual, l1, l2, scaled, dynamic, fixed = RECORDING.array(f"{place}/opts").tolist()
    method = METHOD[variant]
    settings = settings_for(
        method,
        "celeba",
        steps=int(RECORDING.number("respaced")),
        tau=int(RECORDING.number("tau")),
        mask_from=int(RECORDING.number("tau")) - 1 - int(RECORDING.number("warmup")),
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
    return settings


def problem_with(noise: object) -> Problem:
    return Problem(
        RECORDING.tensor("x0"),
        RECORDING.tensor("target"),
        celeba_denoiser(RECORDING),
        TinyClassifier(RECORDING),
        noise,
        features=TinyFeatures(RECORDING),
    )


@dataclass
class Run:
    edit: Edit
    events: list[Event]
    noise: Replay


def noise_of(settings: GuidedSettings, place: str, second: str | None) -> Replay:
    tau = settings.tau
    draws = list(RECORDING.tensor(f"{place}/noise"))
    if settings.gradient == "nested":
        return replay([("start",), *nested_order(tau, stochastic=settings.nested_noise)], draws)
    masked = range(settings.mask_from + 1) if settings.mask == "difference" else []
    order = [("start",), *guided_order(tau, masked)]
    if second is not None:
        draws += list(RECORDING.tensor(f"{second}/noise"))
        order += guided_order(tau, range(tau), number=2)
    return replay(order, draws)


@torch.no_grad()
def run(settings: GuidedSettings, noise: Replay) -> Run:
    events: list[Event] = []
    edit = guided(problem_with(noise), settings, settings.scales[0], events.append)
    assert noise.left == thrown_away(noise.left)
    return Run(edit, events, noise)


def check_pass(settings: GuidedSettings, place: str, run: Run, events: list[Event]) -> None:
    close(torch.stack([event.x_t for event in events]), RECORDING.tensor(f"{place}/z_steps"))
    close(events[0].x_t, RECORDING.tensor(f"{place}/z_init"))
    entering = [RECORDING.tensor("x0"), *[event.clean for event in events[:-1]]]
    if settings.gradient == "nested":
        entering = [event.judged for event in events]
    close(torch.stack(entering), RECORDING.tensor(f"{place}/xd_steps"))
    masked = [event for event in events if event.mask is not None]
    if f"{place}/keepmask" in RECORDING:
        maps = torch.stack([difference_map(RECORDING.tensor("x0"), event.x0_hat) for event in masked])
        close(maps, RECORDING.tensor(f"{place}/diffmap"))
        assert torch.equal(
            ~torch.stack([event.mask for event in masked]), RECORDING.tensor(f"{place}/keepmask")
        )


def check_end(place: str, edit: Edit) -> None:
    close(edit.x_cf, RECORDING.tensor(f"{place}/final"))
    logits = TinyClassifier(RECORDING).logits(edit.x_cf, torch.zeros(len(edit.x_cf)))
    close(logits[:, 0], RECORDING.tensor(f"{place}/final_logits"))


def test_every_variant_of_the_file_is_known() -> None:
    assert VARIANTS
    assert set(VARIANTS) <= set(METHOD)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str) -> None:
    if f"{variant}/pass1/opts" in RECORDING:
        check_two_passes(variant)
    else:
        settings = settings_of(variant, variant)
        result = run(settings, noise_of(settings, variant, None))
        check_pass(settings, variant, result, result.events)
        check_end(variant, result.edit)
    assert not RECORDING.unseen(f"{variant}/")


def check_two_passes(variant: str) -> None:
    first, second = f"{variant}/pass1", f"{variant}/pass2"
    settings = settings_of(variant, first)
    assert settings_of(variant, second) == settings
    result = run(settings, noise_of(settings, first, second))
    check_pass(settings, first, result, result.events[: settings.tau])
    check_pass(settings, second, result, result.events[settings.tau :])
    check_end(second, result.edit)
    alone = settings.model_copy(update={"second_pass": "none"})
    check_end(first, run(alone, noise_of(alone, first, None)).edit)
    x, image = RECORDING.tensor("x0"), RECORDING.tensor(f"{first}/final")
    close(difference_map(x, image), RECORDING.tensor(f"{variant}/fixed_diffmap"))
    mask = difference_mask(x, image, settings.dilation, settings.threshold)
    assert torch.equal(~mask, RECORDING.tensor(f"{variant}/fixed_keepmask"))
    assert torch.equal(result.edit.mask, mask)


def test_prediction_and_target() -> None:
    x = RECORDING.tensor("x0")
    logits = TinyClassifier(RECORDING).logits(x, torch.zeros(len(x)))[:, 0]
    close(logits, RECORDING.tensor("logits_x0"))
    assert torch.equal((logits > 0).long(), RECORDING.tensor("pred"))
    assert torch.equal(1 - RECORDING.tensor("pred"), RECORDING.tensor("target"))


def recorded_l2_weight() -> float:
    """The file does not name it, but the gradient has this length at every pixel."""
    return RECORDING.tensor("grad/dist_l2").norm(dim=1).median().item()


@pytest.mark.parametrize("name", [key for key in RECORDING.arrays if key.startswith("grad/")])
def test_gradient(name: str) -> None:
    problem = problem_with(SeededNoise(0, []))
    x, xd, z = problem.x, RECORDING.tensor("grad/xd"), RECORDING.tensor("grad/z")
    s, l1 = RECORDING.number("s"), RECORDING.number("l1")
    weight, signal = RECORDING.number("lperc"), RECORDING.number("grad/sqrt_ab")
    time = torch.zeros(len(x))
    wanted = problem.features(x)
    perceptual = weight * perceptual_gradient(problem.features, xd, wanted)
    l2 = recorded_l2_weight() * l2_gradient(z, x)
    values = {
        "grad/xd": xd,
        "grad/z": z,
        "grad/sqrt_ab": torch.tensor(signal),
        "grad/cls_logits": s * class_gradient(problem, xd, time, "logit"),
        "grad/cls_logsig": s * class_gradient(problem, xd, time, "log-probability"),
        "grad/dist_l1": l1 * l1_gradient(z, x),
        "grad/dist_l2": l2,
        "grad/dist_perc": perceptual,
        "grad/dist_all_scaled": l1 * l1_gradient(z, x) + l2 + perceptual / signal,
        "grad/perc_value": weight * (problem.features(xd) - wanted).square().flatten(1).mean(1).sum(),
    }
    close(values[name].detach(), RECORDING.tensor(name))


def test_all_gradients_together() -> None:
    """The objective adds them up as the published functions do."""
    settings = settings_of("fastdime", "fastdime").model_copy(
        update={
            "l1": RECORDING.number("l1"),
            "l2": recorded_l2_weight(),
            "perceptual": RECORDING.number("lperc"),
        }
    )
    problem = problem_with(SeededNoise(0, []))
    xd, z = RECORDING.tensor("grad/xd"), RECORDING.tensor("grad/z")
    time = torch.zeros(len(z), dtype=torch.int64)
    step = Step(problem.x, z, xd, 0, 0, time, problem.denoiser.posterior(z, 0), None)
    objective = Objective(problem, problem.denoiser, settings, RECORDING.number("s"))
    total = objective.gradients(step, Estimate(xd, xd), through=False).total
    parts = ["cls_logits", "dist_l1", "dist_l2", "dist_perc"]
    close(total, sum(RECORDING.tensor(f"grad/{part}") for part in parts))


def test_mask_function() -> None:
    x, image = RECORDING.tensor("x0"), RECORDING.tensor("grad/xd")
    dilation, threshold = int(RECORDING.number("dilation")), RECORDING.number("thr")
    close(difference_map(x, image), RECORDING.tensor("mask/diffmap"))
    close(dilate(difference_map(x, image), dilation), RECORDING.tensor("mask/dilated"))
    assert torch.equal(~difference_mask(x, image, dilation, threshold), RECORDING.tensor("mask/keep"))
    assert not RECORDING.unseen("mask/")


@torch.no_grad()
def test_one_denoising_call() -> None:
    chain = celeba_denoiser(RECORDING).respaced(int(RECORDING.number("respaced")))
    posterior = chain.posterior(RECORDING.tensor("grad/z"), int(RECORDING.number("pmv/t")))
    close(posterior.mean, RECORDING.tensor("pmv/mean"))
    close(posterior.variance, RECORDING.tensor("pmv/variance"))
    close(posterior.log_variance, RECORDING.tensor("pmv/log_variance"))
    close(posterior.x0_hat, RECORDING.tensor("pmv/pred_xstart"))
    assert not RECORDING.unseen("pmv/")


def test_timestep_map() -> None:
    kept = sch.respaced_indices(int(RECORDING.number("T")), int(RECORDING.number("respaced")))
    assert kept == RECORDING.array("timestep_map").tolist()


def test_no_array_is_left_over() -> None:
    known = {"x0", "target", "pred", "logits_x0", "timestep_map", "T", "respaced", "tau", "warmup"}
    known |= {"dilation", "thr", "l1", "lperc", "s"}
    assert {key for key in RECORDING.arrays if "/" not in key} <= known | NETWORK_ARRAYS
