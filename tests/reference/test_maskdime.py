"""The MaskDiME sampler: every variant in maskdime.npz, from recorded noise."""

import pytest
import torch

from fastdime.counterfactuals.loop import guided
from fastdime.counterfactuals.masks import TopGradientMask
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event
from fastdime.diffusion import schedule as sch
from support.recordings import (
    NETWORK_ARRAYS,
    Recording,
    Replay,
    TinyClassifier,
    TinyFeatures,
    celeba_denoiser,
    close,
    replay,
)
from support.retries import check_retries

RECORDING = Recording("maskdime")
VARIANTS = [name for name in RECORDING.groups() if name not in ("mask", "retry")]
KNOWN = {"", "_nodist", "_l1", "_l2", "_perchannel", "_perchannel_nodist", "_clip", "_clip_perchannel"}
KNOWN |= {"_clip_single", "_logsig", "_guided2", "_guided0", "_progdefault"}


def settings_of(place: str) -> GuidedSettings:
    (
        s,
        use_logits,
        perceptual,
        l1,
        l2,
        distance,
        guided_steps,
        grad_scale,
        top,
        inner,
        clip,
        sigma,
        blur,
        _,
        per_channel,
    ) = RECORDING.array(f"{place}/opts").tolist()
    settings = settings_for(
        "maskdime",
        "celeba",
        steps=int(RECORDING.number("respaced")),
        tau=int(RECORDING.number("tau")),
        scales=(s,),
        class_loss="logit" if use_logits else "log-probability",
        perceptual=RECORDING.number("lperc") if perceptual and distance else 0.0,
        l1=l1 if distance else 0.0,
        l2=l2 if distance else 0.0,
        guided_steps=int(guided_steps),
        strength=grad_scale,
        top_share=top,
        inner_share=inner,
        clip_sigma=sigma if clip else None,
        dilation=int(blur),
        per_channel=bool(per_channel),
    )
    assert isinstance(settings, GuidedSettings)
    return settings


def paste_order(settings: GuidedSettings, attempt: int = 0) -> list[tuple[str | int, ...]]:
    levels = range(settings.tau - 1, settings.tau - 1 - min(settings.guided_steps, settings.tau), -1)
    return [("attempt", attempt, "pass", 1, "paste", t) for t in levels]


def problem_for(noise: Replay, index: torch.Tensor) -> Problem:
    return Problem(
        RECORDING.tensor("x0")[index],
        RECORDING.tensor("target")[index],
        celeba_denoiser(RECORDING),
        TinyClassifier(RECORDING),
        noise,
        features=TinyFeatures(RECORDING),
    )


def test_every_variant_of_the_file_is_known() -> None:
    assert VARIANTS
    assert set(VARIANTS) <= {f"maskdime{name}" for name in KNOWN}


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str) -> None:
    settings = settings_of(variant)
    noise = replay([("start",), *paste_order(settings)], RECORDING.tensor(f"{variant}/noise"))
    problem = problem_for(noise, RECORDING.tensor(f"{variant}/image_index"))
    events: list[Event] = []
    edit = guided(problem, settings, settings.scales[0], events.append)
    assert not noise.left
    close(events[0].x_t, RECORDING.tensor(f"{variant}/z_init"))
    close(torch.stack([event.x_t for event in events]), RECORDING.tensor(f"{variant}/z_steps"))
    entering = [problem.x, *[event.judged for event in events[:-1]]]
    close(torch.stack(entering), RECORDING.tensor(f"{variant}/xd_steps"))
    close(edit.x_cf, RECORDING.tensor(f"{variant}/final"))
    logits = problem.classifier.logits(edit.x_cf, torch.zeros(len(edit.x_cf)))
    close(logits[:, 0], RECORDING.tensor(f"{variant}/final_logits"))
    check_guided_steps(variant, [event for event in events if event.class_gradient is not None])
    assert not RECORDING.unseen(f"{variant}/")


def check_guided_steps(variant: str, events: list[Event]) -> None:
    if not events:
        assert f"{variant}/xd_grad" not in RECORDING
        return
    close(torch.stack([event.judged for event in events]), RECORDING.tensor(f"{variant}/xd_grad"))
    close(torch.stack([event.class_gradient for event in events]), RECORDING.tensor(f"{variant}/class_grad"))
    assert torch.equal(torch.stack([event.mask for event in events]), RECORDING.tensor(f"{variant}/editmask"))
    assert torch.equal(
        torch.stack([event.inner_mask for event in events]), RECORDING.tensor(f"{variant}/xmask")
    )


@pytest.mark.parametrize(("kind", "per_channel"), [("joint", False), ("perchannel", True)])
def test_mask_function(kind: str, per_channel: bool) -> None:
    top, inner, blur, _ = RECORDING.array("mask/opts").tolist()
    masks = TopGradientMask(top, inner, int(blur), per_channel).masks(RECORDING.tensor("mask/grads"))
    assert torch.equal(masks.state, RECORDING.tensor(f"mask/{kind}_edit"))
    assert torch.equal(masks.clean, RECORDING.tensor(f"mask/{kind}_x"))


def test_retry_ladder() -> None:
    """The published main program: strengths in turn on what has not flipped."""
    if "retry" not in RECORDING.groups():
        assert not RECORDING.unseen("retry/")
        return
    check_retries(
        RECORDING,
        "retry",
        settings_of("retry"),
        lambda settings, attempt: [paste_order(settings, attempt)],
        top="retry/",
    )
    assert not RECORDING.unseen("retry/")


def test_prediction_and_target() -> None:
    x = RECORDING.tensor("x0")
    logits = TinyClassifier(RECORDING).logits(x, torch.zeros(len(x)))[:, 0]
    close(logits, RECORDING.tensor("logits_x0"))
    assert torch.equal((logits > 0).long(), RECORDING.tensor("pred"))
    assert torch.equal(1 - RECORDING.tensor("pred"), RECORDING.tensor("target"))
    kept = sch.respaced_indices(int(RECORDING.number("T")), int(RECORDING.number("respaced")))
    assert kept == RECORDING.array("timestep_map").tolist()


def test_no_array_is_left_over() -> None:
    known = {"x0", "target", "pred", "logits_x0", "timestep_map", "T", "respaced", "tau", "lperc"}
    assert {key for key in RECORDING.arrays if "/" not in key} <= known | NETWORK_ARRAYS
    masks = {"grads", "opts", "joint_edit", "joint_x", "perchannel_edit", "perchannel_x"}
    assert {key for key in RECORDING.arrays if key.startswith("mask/")} <= {f"mask/{name}" for name in masks}
