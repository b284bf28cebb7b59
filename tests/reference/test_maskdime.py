"""The MaskDiME sampler: every variant in maskdime.npz, from recorded noise."""

import pytest
import torch

from fastdime.counterfactuals.loop import Edit, guided
from fastdime.counterfactuals.masks import TopGradientMask
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event
from support.recordings import (
    DERIVED,
    Recording,
    celeba_problem,
    check_inputs,
    close,
    known,
    logits_of,
    replay,
)
from support.retries import check_retries

RECORDING = Recording("maskdime")
GROUPS = RECORDING.groups()
VARIANTS = [name for name in GROUPS if name not in ("mask", "retry")]
OPTIONS = "_(nodist|l1|l2|perchannel|clip|single|logsig|guided[0-9]+|progdefault)"


def settings_of(place: str) -> GuidedSettings:
    opts = RECORDING.array(f"{place}/opts").tolist()
    s, use_logits, perceptual, l1, l2, distance, guided_steps, strength = opts[:8]
    top, inner, clip, sigma, blur, _, per_channel = opts[8:]  # a blur is a dilation, whatever its sigma
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
        strength=strength,
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


def test_every_variant_and_array_of_the_file_is_known() -> None:
    known(VARIANTS, f"maskdime({OPTIONS})*")
    assert not RECORDING.left_over("x0 target pred logits_x0 timestep_map T respaced tau lperc")


def test_prediction_and_target() -> None:
    check_inputs(RECORDING)


def run(settings: GuidedSettings, place: str) -> tuple[Edit, list[Event]]:
    """Run on the images and the draws of one recorded run."""
    index = RECORDING.tensor(f"{place}/image_index")
    noise = replay([("start",), *paste_order(settings)], RECORDING.tensor(f"{place}/noise"))
    x, target = RECORDING.tensor("x0")[index], RECORDING.tensor("target")[index]
    events: list[Event] = []
    edit = guided(celeba_problem(RECORDING, x, target, noise), settings, settings.scales[0], events.append)
    assert not noise.left
    return edit, events


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_variant(variant: str) -> None:
    edit, events = run(settings_of(variant), variant)
    close(events[0].x_t, RECORDING.tensor(f"{variant}/z_init"))
    close(torch.stack([event.x_t for event in events]), RECORDING.tensor(f"{variant}/z_steps"))
    entering = [RECORDING.tensor("x0")[RECORDING.tensor(f"{variant}/image_index")]]
    entering += [event.judged for event in events[:-1]]
    close(torch.stack(entering), RECORDING.tensor(f"{variant}/xd_steps"))
    close(edit.x_cf, RECORDING.tensor(f"{variant}/final"))
    close(logits_of(RECORDING, edit.x_cf), RECORDING.tensor(f"{variant}/final_logits"), DERIVED)
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


@torch.no_grad()
def test_clipping_over_each_image_makes_a_batch_equal_to_its_images() -> None:
    """The published program clips over the batch; our default gives what it gives for an image alone."""
    if {"maskdime_clip", "maskdime_clip_single"} <= set(VARIANTS):
        settings = settings_of("maskdime_clip").model_copy(update={"clip_over": "image"})
        together = run(settings, "maskdime_clip")[0].x_cf
        alone = RECORDING.tensor("maskdime_clip_single/image_index")
        close(together[alone], RECORDING.tensor("maskdime_clip_single/final"))


def test_mask_function() -> None:
    for kind in ("joint", "perchannel") if "mask" in GROUPS else ():
        top, inner, blur, _ = RECORDING.array("mask/opts").tolist()
        rule = TopGradientMask(top, inner, int(blur), per_channel=kind == "perchannel")
        masks = rule.masks(RECORDING.tensor("mask/grads"))
        assert torch.equal(masks.state, RECORDING.tensor(f"mask/{kind}_edit"))
        assert torch.equal(masks.clean, RECORDING.tensor(f"mask/{kind}_x"))
    assert not RECORDING.unseen("mask/")


def test_shares_are_cut_to_whole_pixels_one_after_the_other() -> None:
    """12.9 pixels are 12, of which 95 percent are 11 (of 12.9 they would be 12)."""
    masks = TopGradientMask(0.129, 0.95, 1, per_channel=False).masks(torch.arange(100.0).view(1, 1, 10, 10))
    assert (masks.state.sum().item(), masks.clean.sum().item()) == (12, 11)


def test_retry_ladder() -> None:
    """The published main program: strengths in turn on what has not flipped."""
    if "retry" in GROUPS:
        settings = settings_of("retry")
        check_retries(RECORDING, "retry", settings, lambda made, n: [paste_order(made, n)], top="retry/")
    assert not RECORDING.unseen("retry/")
