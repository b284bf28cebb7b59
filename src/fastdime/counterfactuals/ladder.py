"""The ladder of strengths: what has not reached the target tries the next one; the best attempt stays."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fastdime.counterfactuals.loop import Edit
from fastdime.counterfactuals.methods import events, run
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.recorder import Recorder
from fastdime.counterfactuals.settings import Settings
from fastdime.counterfactuals.step import Event
from fastdime.pixels import to_grid
from fastdime.scores import predicted_class, probabilities
from fastdime.types import Counterfactuals

Tick = Callable[[int, int], None]
Inspect = Callable[[Tensor, float, Edit], None]


def judge(problem: Problem, image: Float[Tensor, "b c h w"]) -> tuple[Float[Tensor, " b"], Int[Tensor, " b"]]:
    """Return the probability of the target class, and the predicted class."""
    logits = problem.classifier.logits(image, torch.zeros_like(problem.target))
    return probabilities(logits).gather(1, problem.target[:, None])[:, 0], predicted_class(logits)


def settle(problem: Problem, settings: Settings, edit: Edit) -> tuple[Tensor, Tensor, Tensor]:
    """Return the image to save, the image to judge, and which attempts came to anything at all.

    An attempt that diverged has the input in its place.
    """
    finite = edit.x_cf.isfinite().flatten(1).all(1)
    raw = torch.where(finite.view(-1, 1, 1, 1), edit.x_cf, problem.x)
    saved = to_grid(raw, problem.bits, truncate=settings.rounding == "truncate")
    if settings.judge == "saved":
        saved = raw = torch.where(edit.mask, saved, problem.x)
    return torch.where(problem.allowed(), saved, problem.x), raw, finite


def climb(
    problem: Problem,
    settings: Settings,
    record: Collection[int] = (),
    tick: Tick | None = None,
    inspect: Inspect | None = None,
) -> Counterfactuals:
    """Try the strengths in turn on the images that need them.

    Args:
        record: numbers of the steps to keep in the trajectory.
        tick: called with (steps done, steps of this attempt).
        inspect: called after each attempt with its rows of the batch, its strength and the raw edit.
    """
    recorder = Recorder(problem.x, record)
    best = _first(problem, skip=settings.skip_if_met)
    for attempt, scale in enumerate(settings.scales):
        rows = (~best.valid).nonzero()[:, 0]
        if not len(rows):
            break
        part = replace(problem.rows(rows), attempt=attempt)
        edit = run(part, settings, scale, _watch(recorder, settings, tick))
        if inspect is not None:
            inspect(rows, scale, edit)
        best, better = _merge(best, rows, part, settings, edit, scale)
        recorder.keep(rows, better)
    lost = best.p_after < 0
    p_after = torch.where(lost, best.p_before, best.p_after)
    return replace(
        best,
        p_after=p_after,
        diverged=lost,
        denoiser_calls=_each(problem.meter.denoiser, best.target),
        gradient_calls=_each(problem.meter.gradient, best.target),
        trajectory=recorder.trajectory,
    )


def _each(counts: Counter[int], like: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
    return like.new_tensor([counts[place] for place in range(len(like))])


def _first(problem: Problem, *, skip: bool) -> Counterfactuals:
    """Start with the inputs; any attempt that comes to something beats them, unless they may stay."""
    p, predicted = judge(problem, problem.x)
    met = (predicted == problem.target) & skip
    zeros = torch.zeros_like(problem.target)
    return Counterfactuals(
        x_cf=problem.x.clone(),
        mask=torch.zeros_like(problem.x[:, :1], dtype=torch.bool),
        predicted=predicted,
        target=problem.target,
        p_before=p,
        p_after=torch.where(met, p, -1.0),
        valid=met,
        scale=torch.zeros_like(p),
        denoiser_calls=zeros,
        gradient_calls=zeros,
        diverged=torch.zeros_like(met),
    )


def _merge(
    best: Counterfactuals, rows: Tensor, part: Problem, settings: Settings, edit: Edit, scale: float
) -> tuple[Counterfactuals, Tensor]:
    """Judge an attempt on some rows of the batch and take over what is better."""
    saved, judged, finite = settle(part, settings, edit)
    p, predicted = judge(part, judged)
    valid = (predicted == part.target) & finite
    better = finite & (valid | (p > best.p_after[rows]) | (settings.keep == "last"))
    place = rows[better]
    merged = replace(
        best,
        x_cf=best.x_cf.index_copy(0, place, saved[better]),
        mask=best.mask.index_copy(0, place, edit.mask[better]),
        p_after=best.p_after.index_copy(0, place, p[better]),
        valid=best.valid.index_copy(0, place, valid[better]),
        scale=best.scale.index_fill(0, place, scale),
    )
    return merged, better


def _watch(recorder: Recorder, settings: Settings, tick: Tick | None) -> Callable[[Event], None]:
    recorder.begin()
    total = events(settings)

    def watch(event: Event) -> None:
        recorder.see(event)
        if tick is not None:
            tick(recorder.steps, total)

    return watch
