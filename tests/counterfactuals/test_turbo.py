"""Turbo: its parts by hand, and the whole on the shipped chest bundle."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from fastdime.bundles import load_bundle
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.counterfactuals import turbo as turbo_module
from fastdime.counterfactuals.canvas import Canvas, Push
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.masks import strongest, without_holes
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import TurboSettings
from fastdime.counterfactuals.smoothing import blurred, grain
from fastdime.counterfactuals.turbo import Found, agreement, locate, stretched, to_erase, turbo
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.schedule import linear
from fastdime.experiments.truth import Judges, pairs, score
from fastdime.noise import SeededNoise

SIZE = 24
BOX = torch.zeros(1, 1, SIZE, SIZE, dtype=torch.bool)
BOX[:, :, 4:8, 14:18] = True


class Half(torch.nn.Module):
    """Says that the clean image is half of the state, whatever the level: all can be told by hand."""

    def forward(self, x_t: Tensor, _times: Tensor) -> Tensor:
        return 0.5 * x_t


class Bright(torch.nn.Module):
    """Sees how bright the box is: log-odds 0 at grey."""

    def forward(self, x: Tensor) -> Tensor:
        return 8 * x[:, :, 4:8, 14:18].mean((1, 2, 3), keepdim=True)[..., 0, 0]


def canvas(x: Tensor, target: int, *, scale: float = 1.0, **changes: object) -> Canvas:
    denoiser = Denoiser(Half(), linear(1000), prediction="sample")
    names = [str(row) for row in range(len(x))]
    problem = Problem(
        x, torch.full((len(x),), target), denoiser, ImageClassifier(Bright()), SeededNoise(0, names)
    )
    settings = settings_for("turbo", **changes)
    assert isinstance(settings, TurboSettings)
    return Canvas(problem, settings, scale, problem.noise.draw(x, "start"))


def with_box(value: float = 0.8) -> Tensor:
    return torch.where(BOX, value, torch.zeros(1, 1, SIZE, SIZE))


def test_a_blur_is_that_of_scipy() -> None:
    image = torch.rand(2, 3, 20, 31, generator=torch.Generator().manual_seed(0))
    wanted = gaussian_filter(image.numpy(), sigma=(0, 0, 2.0, 2.0), mode="nearest", truncate=3.0)
    torch.testing.assert_close(blurred(image, 0.1), torch.from_numpy(wanted), atol=1e-5, rtol=0)


def test_grain_stays_and_lines_do_not() -> None:
    noise = 0.1 * torch.randn(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    line = torch.zeros_like(noise)
    line[:, :, 16] = 1.0
    kept = grain(noise + line, torch.zeros_like(noise))
    assert kept[:, :, 16].abs().mean() < 0.1
    elsewhere = (
        torch.cat([kept[:, :, :14], kept[:, :, 19:]], 2),
        torch.cat([noise[:, :, :14], noise[:, :, 19:]], 2),
    )
    assert (elsewhere[0] * elsewhere[1]).sum() > 0.75 * elsewhere[1].square().sum()
    assert torch.equal(grain(noise, noise), torch.zeros_like(noise))


def test_the_strongest_hang_together_and_have_a_limit() -> None:
    strength = torch.tensor([[[[10.0, 2.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]]]])
    assert strongest(strength, 0.5, 0.1, 0.5).flatten().tolist() == [True] * 3 + [False] * 7
    assert strongest(strength, 0.5, 0.2, 0.5).flatten().tolist() == [True] * 2 + [False] * 8
    assert strongest(strength, 0.2, 0.1, 0.5).flatten().tolist() == [True] * 3 + [False, True] + [False] * 5
    # A tenth of ten pixels: the limit rises to the second largest value.
    assert strongest(strength, 0.5, 0.1, 0.1).sum() == 2
    each = torch.cat([strength, strength.flip(3)])
    assert torch.equal(strongest(each, 0.5, 0.1, 0.5)[1:], strongest(strength, 0.5, 0.1, 0.5).flip(3))


def test_holes_are_filled_and_bays_are_not() -> None:
    ring = torch.zeros(1, 1, 5, 5, dtype=torch.bool)
    ring[:, :, 1:4, 1:4] = True
    ring[:, :, 2, 2] = False
    assert without_holes(ring)[0, 0, 2, 2]
    ring[:, :, 2, 3] = False
    assert not without_holes(ring)[0, 0, 2, 2]


def test_a_push_has_its_size_and_ends_at_the_margin() -> None:
    work = canvas(with_box(), 0)
    once = work.pushed(work.x, Push(1, 0.05, 9.0)) - work.x
    assert once.square().mean().sqrt() == pytest.approx(0.05, rel=1e-3)
    peak = work.pushed(work.x, Push(1, 0.05, 9.0, peak=True)) - work.x
    assert peak.abs().max() == pytest.approx(0.05, rel=1e-3)
    assert (peak[BOX] < 0).all()
    far = work.pushed(work.x, Push(200, 0.05, 2.0, peak=True))
    assert 1.0 < work.odds(far) <= 2.05
    assert torch.equal(work.pushed(far.clamp(-1, 1), Push(9, 0.05, 0.5)), far)


def test_a_push_asks_only_for_images_that_need_it_and_only_where_it_may() -> None:
    work = canvas(torch.cat([with_box(), with_box(-0.8)]), 0)
    left = (torch.arange(SIZE) < 16).float().expand(2, 1, SIZE, SIZE)
    moved = work.pushed(work.x, Push(3, 0.05, 4.0), left) - work.x
    assert work.problem.meter.gradient == {0: 3}
    assert not moved[1].any()
    assert moved[0, :, :, :16].any()
    assert not moved[0, :, :, 16:].any()


def test_a_strength_of_zero_locates_nothing_and_changes_nothing() -> None:
    work = canvas(with_box(), 0, scale=0.0)
    edit = turbo(work.problem, work.settings, 0.0)
    assert torch.equal(edit.x_cf, work.x)
    assert not edit.mask.any()


def test_the_noise_cancels_in_what_is_located() -> None:
    """With a denoiser that halves, the difference is half of the push, scaled to its level; noise is gone."""
    work = canvas(with_box(), 0, locate_pushes=1)
    level = work.level(work.settings.locate_level)
    null = work.denoised(work.noised(work.x, level), level)
    found = locate(work, null, 1)
    push = work.pushed(work.x, Push(1, 2 * work.settings.locate_push, work.settings.margin)) - work.x
    signal = float(work.problem.denoiser.schedule.sqrt_alpha_bar[level])
    torch.testing.assert_close(found, 0.5 * signal * push, atol=1e-6, rtol=0)
    assert stretched(found).abs().max() == 1
    assert work.problem.meter.denoiser == {0: 2}


def test_what_is_there_is_erased_and_what_is_not_is_drawn() -> None:
    for x, target, wanted in ((with_box(), 0, True), (with_box(0.0) - 0.4, 1, False)):
        work = canvas(x, target)
        calls: list[int] = []
        edit = turbo(work.problem, work.settings, 1.0, lambda event, calls=calls: calls.append(event.t))
        settings = work.settings
        redraw = len(settings.redraw_levels) + 1
        erasing = 1 + settings.locate_rounds + settings.erase_rounds + 1 + redraw
        drawing = 1 + settings.locate_rounds + 2 * len(settings.draw_levels) - 1 + len(settings.finish_levels)
        made = work.problem.meter.denoiser[0]
        assert made in ((erasing, erasing + 2 + redraw) if wanted else (drawing,))
        assert len(calls) == 3
        outside = ~edit.mask
        assert torch.equal(edit.x_cf[outside], x[outside])


def test_covering_tells_whether_there_is_something_to_erase() -> None:
    for x, target, wanted in (
        (with_box(), 0, True),
        (with_box(-0.4), 1, True),
        (with_box(0.0) - 0.4, 1, False),
    ):
        work = canvas(x, target)
        assert to_erase(work, Found(x, x, BOX)).tolist() == [wanted]


def test_agreement_asks_for_the_same_sign() -> None:
    one = torch.zeros(1, 2, 9, 9)
    one[:, :, 2:4, 2:4], one[:, :, 6:8, 6:8] = 4.0, -1.0
    other = one.abs()
    found = agreement(one, other)
    assert found[0, 0, 2, 2] > 3
    assert found[0, 0, 6:8, 6:8].max() == 0
    assert agreement(one, one)[0, 0, 6, 6] > 0.9


def test_levels_are_found_by_signal_and_not_by_number() -> None:
    shares = [canvas(with_box(), 0).problem.denoiser.schedule.alpha_bar]
    shares.append(linear(100).alpha_bar)
    for share in (0.895, 0.6, 0.194):
        found = [table[np.abs(table - share).argmin()] for table in shares]
        assert found == pytest.approx([share, share], abs=0.02)


@pytest.fixture(scope="module")
def chest() -> tuple[Explainer, Judges]:
    bundle = load_bundle("chest-pacemaker")
    return Explainer.from_bundle(bundle, "turbo"), Judges.of(bundle)


def test_pacemakers_go_and_little_else_changes(chest: tuple[Explainer, Judges]) -> None:
    explainer, judges = chest
    drawn = pairs("chest-pacemaker", 12, "remove", 33_000)
    result = explainer(drawn.x, drawn.target)
    scores = score(drawn, result.x_cf, judges)
    assert scores["oracle_flip"] >= 10 / 12
    assert scores["region_error_ratio"] < 0.3
    assert scores["outside_change"] < 0.004
    assert result.denoiser_calls.double().mean() <= 10


def test_pacemakers_come_and_a_mixed_batch_costs_each_image_its_own(chest: tuple[Explainer, Judges]) -> None:
    explainer, judges = chest
    drawn = pairs("chest-pacemaker", 6, "add", 33_000)
    removal = pairs("chest-pacemaker", 2, "remove", 33_000)
    x = torch.cat([drawn.x, removal.x])
    target = torch.tensor([1] * 6 + [0] * 2)
    names = [str(row) for row in range(8)]
    result = explainer(x, target, ids=names)
    assert score(drawn, result.x_cf[:6], judges)["oracle_flip"] >= 5 / 6
    alone = explainer(x[6:], target[6:], ids=names[6:])
    assert alone.denoiser_calls.tolist() == result.denoiser_calls[6:].tolist()
    assert set(result.denoiser_calls[:6].tolist()) != set(result.denoiser_calls[6:].tolist())
    torch.testing.assert_close(alone.x_cf, result.x_cf[6:], atol=1e-4, rtol=0)


def test_what_the_guide_still_sees_is_erased_in_addition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round adds to the mask of the one before."""
    work = canvas(with_box(), 0, again=2, margin=50.0)
    spots = [torch.zeros_like(BOX), torch.zeros_like(BOX)]
    spots[0][:, :, 14:17, 2:5] = True
    spots[1][:, :, 20:23, 20:23] = True
    masks = iter(spots)
    redrawn: list[Tensor] = []
    real = turbo_module._redrawn

    def seen(part: Canvas, found: Found, mask: Tensor) -> object:
        redrawn.append(mask)
        return real(part, found, mask)

    monkeypatch.setattr(turbo_module, "_rest", lambda *_: next(masks))
    monkeypatch.setattr(turbo_module, "_redrawn", seen)
    null = work.denoised(work.noised(work.x, 5), 5)
    turbo_module.erase(work, Found(null, -work.x, BOX))
    assert len(redrawn) == 3
    assert torch.equal(redrawn[1], redrawn[0] | spots[0])
    assert torch.equal(redrawn[2], redrawn[1] | spots[1])
