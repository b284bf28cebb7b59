"""Turbo: locate what the guide and the denoiser agree on, erase it or draw it anew, in few denoiser calls."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastdime.counterfactuals.canvas import SOFT, Canvas, Push
from fastdime.counterfactuals.fill import filled
from fastdime.counterfactuals.loop import Edit
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import TurboSettings
from fastdime.counterfactuals.smoothing import blurred
from fastdime.counterfactuals.step import Event, Watch, ignore

EVENTS = 3  # located, covered or begun, finished
RANGE = 2.0  # of an image's values


@dataclass(frozen=True)
class Found:
    """What was located: the image as the denoiser returns it, how a push changes that, and where."""

    null: Float[Tensor, "b c h w"]
    difference: Float[Tensor, "b c h w"]
    mask: Bool[Tensor, "b 1 h w"]

    def rows(self, index: Tensor) -> "Found":
        """Return the same for some images."""
        return Found(self.null[index], self.difference[index], self.mask[index])


@dataclass(frozen=True)
class Drawn:
    """An edit, the share of it in each place, and the draft that it was made from."""

    image: Float[Tensor, "b c h w"]
    weight: Float[Tensor, "b 1 h w"]
    draft: Float[Tensor, "b c h w"]


def turbo(problem: Problem, settings: TurboSettings, scale: float, watch: Watch = ignore) -> Edit:
    """Make one attempt: each image goes the way that suits it, in a batch of its kind."""
    canvas = Canvas(problem, settings, scale, problem.part("turbo").draw(problem.x, "start"))
    level = canvas.level(settings.locate_level)
    null = canvas.denoised(canvas.noised(problem.x, level), level)
    found = _masked(canvas, null, locate(canvas, null, settings.locate_rounds))
    watch(_event(0, level, canvas.x, canvas.x + stretched(found.difference), found.mask))
    visible = to_erase(canvas, found)
    drawn = Drawn(problem.x, torch.zeros_like(problem.x[:, :1]), problem.x)
    for rows, work in ((visible, erase), (~visible, draw)):
        if rows.any():
            index = rows.nonzero()[:, 0]
            drawn = _merged(drawn, index, work(canvas.rows(index), found.rows(index)))
    mask = (drawn.weight > 0) & problem.allowed()
    watch(_event(1, level, canvas.x, drawn.draft, mask))
    watch(_event(2, 0, drawn.draft, drawn.image.clone(), mask))
    return Edit(drawn.image, mask)


def locate(
    canvas: Canvas, null: Float[Tensor, "b c h w"], rounds: int, difference: Tensor | None = None
) -> Float[Tensor, "b c h w"]:
    """Return how the denoised image changes when the guide pushes the input.

    State and noise are those of `null`, so the denoiser's own error cancels. To first order the difference
    is the posterior covariance of the denoiser times the push: it spreads over all that varies together with
    what the guide looks at. Each round begins with the difference of the one before, stretched.
    """
    settings = canvas.settings
    level = canvas.level(settings.locate_level)
    push = Push(settings.locate_pushes, RANGE * settings.locate_push, settings.margin)
    for _ in range(rounds):
        start = canvas.x if difference is None else (canvas.x + stretched(difference)).clamp(-1, 1)
        pushed = canvas.pushed(start, push)
        # Where nothing is pushed there is no difference, not that of two batches' rounding.
        difference = torch.where(
            (pushed == canvas.x).flatten(1).all(1).view(-1, 1, 1, 1),
            0.0,
            canvas.denoised(canvas.noised(pushed, level), level) - null,
        )
    assert difference is not None
    return difference


def stretched(difference: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Scale each difference so that its peak is half of the range of values."""
    peak = difference.abs().amax((1, 2, 3), keepdim=True)
    return torch.where(peak > 0, difference / peak, 0.0)


def to_erase(canvas: Canvas, found: Found) -> Bool[Tensor, " b"]:
    """Tell whether there is something to take away: cover what was located, and half of the odds are gone."""
    return canvas.odds(filled(canvas.x, found.mask)) > canvas.odds(canvas.x) / 2


def erase(canvas: Canvas, found: Found) -> Drawn:
    """Take away what was located.

    Covered, it also changes what the denoiser makes of other places that hang together with it. Where that
    and what was located agree, the image is covered and redrawn.
    """
    settings = canvas.settings
    difference = locate(canvas, found.null, settings.erase_rounds, found.difference)
    found = _masked(canvas, found.null, difference)
    level = canvas.level(settings.locate_level)
    without = canvas.denoised(canvas.noised(filled(canvas.x, found.mask), level), level)
    strength = agreement(found.difference, without - found.null)
    mask = canvas.mask(
        strength, settings.evidence_sure, settings.evidence_faint, settings.area, settings.widen
    )
    drawn = _redrawn(canvas, found, mask)
    for _ in range(settings.again):
        left = (canvas.odds(drawn.image) < settings.margin / 2).nonzero()[:, 0]
        if not len(left):
            break
        mask = mask.index_copy(0, left, mask[left] | _rest(canvas.rows(left), drawn.image[left]))
        drawn = _merged(drawn, left, _redrawn(canvas.rows(left), found.rows(left), mask[left]))
    return drawn


def _rest(canvas: Canvas, image: Tensor) -> Bool[Tensor, "b 1 h w"]:
    """Locate on the edited image what the guide still sees."""
    edited, level = canvas.of(image), canvas.level(canvas.settings.locate_level)
    null = edited.denoised(edited.noised(image, level), level)
    return _masked(edited, null, locate(edited, null, 1)).mask


def _redrawn(canvas: Canvas, found: Found, mask: Tensor) -> Drawn:
    settings = canvas.settings
    weight, covered = canvas.soft(mask), filled(canvas.x, mask)
    levels = [canvas.level(share) for share in (*settings.redraw_levels, settings.locate_level)]
    image, weight = canvas.transplanted(canvas.redrawn(covered, weight, levels), found.null, weight)
    return Drawn(image, weight, covered)


def agreement(one: Float[Tensor, "b c h w"], other: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 1 h w"]:
    """Return the geometric mean of two changes where they have the same sign, 0 elsewhere."""
    product = blurred(one, SOFT) * blurred(other, SOFT)
    return product.sum(1, keepdim=True).clamp(min=0).sqrt()


def draw(canvas: Canvas, found: Found) -> Drawn:
    """Draw something that is not there: begin it at high noise, find its place, finish it inside its mask.

    The place is where the guided chain differs from the same chain without guidance. What they differ by is
    put into the image, and finished with the image around it.
    """
    settings = canvas.settings
    begun, null, rest = _begin(canvas)
    strength = blurred((begun.x0_hat - null).abs().sum(1, keepdim=True), SOFT)
    mask = canvas.mask(
        strength, settings.draw_sure, settings.draw_faint, settings.draw_area, 2 * settings.widen
    )
    weight = canvas.soft(mask)
    push = _drawing(settings, settings.finish_pushes)
    image = canvas.x + weight * (begun.pushed - null)
    image = draft = canvas.pushed(image.clamp(-1, 1), push, weight)
    levels = [canvas.level(share) for share in settings.finish_levels]
    for number, level in enumerate(levels):
        x_t = canvas.noised(image, level, canvas.noise + weight * (rest - canvas.noise))
        x0_hat = canvas.denoised(x_t, level)
        image = canvas.x + weight * (x0_hat - canvas.x)
        if number + 1 < len(levels):
            image, rest = canvas.pushed(image, push, weight), canvas.noise_in(x_t, level, x0_hat)
    image, weight = canvas.transplanted(image, found.null, weight)
    return Drawn(image, weight, draft)


@dataclass(frozen=True)
class _Begun:
    x0_hat: Tensor
    pushed: Tensor


def _begin(canvas: Canvas) -> tuple[_Begun, Tensor, Tensor]:
    """Run the guided chain and the one without guidance from the same state; returns also the noise left."""
    settings = canvas.settings
    levels = [canvas.level(share) for share in settings.draw_levels]
    push = _drawing(settings, settings.draw_pushes)
    guided = free = canvas.noised(canvas.x, levels[0])
    for number, level in enumerate(levels):
        null = canvas.denoised(free, level)
        x0_hat = canvas.denoised(guided, level) if number else null
        pushed = canvas.pushed(x0_hat, push)
        rest = canvas.noise_in(guided, level, x0_hat)
        if number + 1 < len(levels):
            below = levels[number + 1]
            free = canvas.noised(null, below, canvas.noise_in(free, level, null))
            guided = canvas.noised(pushed, below, rest)
    return _Begun(x0_hat, pushed), null, rest


def _drawing(settings: TurboSettings, times: int) -> Push:
    return Push(times, RANGE * settings.draw_push, settings.draw_margin, peak=True)


def _masked(canvas: Canvas, null: Tensor, difference: Tensor) -> Found:
    settings = canvas.settings
    strength = blurred(difference.abs().sum(1, keepdim=True), SOFT)
    mask = canvas.mask(strength, settings.sure, settings.faint, settings.area, settings.widen)
    return Found(null, difference, mask)


def _merged(drawn: Drawn, rows: Tensor, part: Drawn) -> Drawn:
    """Put the work on some images into that on all."""
    return Drawn(
        drawn.image.index_copy(0, rows, part.image),
        drawn.weight.index_copy(0, rows, part.weight),
        drawn.draft.index_copy(0, rows, part.draft),
    )


def _event(index: int, level: int, x_t: Tensor, image: Tensor, mask: Tensor) -> Event:
    """Tell a stage as a step: what entered, and what came of it."""
    return Event(index, level, x_t, image, mask, image, None, mask, image, image)


def largest_cost(settings: TurboSettings) -> tuple[int, int]:
    """Return denoiser and gradient calls of the dearer of the two ways."""
    redraw = len(settings.redraw_levels) + 1
    erasing = settings.erase_rounds + 1 + redraw + settings.again * (2 + redraw)
    drawing = 2 * len(settings.draw_levels) - 1 + len(settings.finish_levels)
    gradients = (
        settings.locate_pushes * (settings.erase_rounds + settings.again),
        settings.draw_pushes * len(settings.draw_levels)
        + settings.finish_pushes * len(settings.finish_levels),
    )
    pushes = settings.locate_pushes * settings.locate_rounds
    return 1 + settings.locate_rounds + max(erasing, drawing), pushes + max(gradients)
