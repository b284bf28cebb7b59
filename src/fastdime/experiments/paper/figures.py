"""The figures of the paper that show images: the teaser, the path of a counterfactual, and the gallery."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fastdime.audit.pictures import Show
from fastdime.errors import expected
from fastdime.experiments.demo import TASK_MODELS
from fastdime.experiments.paper import gallery, path, teaser
from fastdime.experiments.paper.experiment import Experiment, NotForThese, Outcome, Plan, Source
from fastdime.experiments.paper.stage import COLUMNS, IMAGES, Shots, Stage, failed, joined, kept
from fastdime.experiments.truth import DIRECTIONS

LEANING = "k100"  # the task model that was trained where the shortcut always goes with the task
UNCHOSEN = "the first images of each source (of its test split) were taken, whatever came of them"


def run_teaser(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Draw what three ways to look at a task model show: SmoothGrad, an explanation, the shortcut removed."""
    there = sorted(place.name.removesuffix(f"-{LEANING}") for place in TASK_MODELS.glob(f"*-{LEANING}"))
    chosen = [source for source in plan.sources if source.exact and source.name in there]
    others = [source.name for source in plan.sources if source not in chosen]
    if not chosen:
        wanted = f"a phantom whose task model comes with fastdime ({', '.join(there)})"
        raise NotForThese(expected("teaser", wanted, ", ".join(others), f"give --phantom {there[0]}"))
    parts, notes = list[Outcome](), [UNCHOSEN]
    for source in chosen:
        drawer = teaser.Teaser(_stage(experiment, plan, source), TASK_MODELS / f"{source.name}-{LEANING}")
        place = plan.out / f"teaser-{source.name}.png"
        parts.append(kept(place, drawer.asked, partial(drawer.draw, show)))
    notes += [f"{name}: left out, no task model of it comes with the package" for name in others]
    return joined(parts, teaser.COLUMNS, notes)


def run_path(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Draw x_t, the denoised image and the mask over time."""
    made, notes = _both_ways(experiment, plan, "path", partial(path.draw_path, show=show))
    return joined(made, path.COLUMNS, notes)


def run_gallery(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Draw the counterfactuals of several methods side by side, those that failed among them."""
    methods = tuple(experiment.size(plan.scale).get("methods", gallery.METHODS))
    draw = partial(gallery.draw_gallery, methods=methods, show=show)
    made, notes = _both_ways(experiment, plan, "gallery", draw)
    rows = [row for part in made for row in part.rows]
    missed = f"{sum(map(failed, rows))} of {len(rows)} counterfactuals missed their target: red frames"
    return joined(made, COLUMNS, [*notes, missed])


def _both_ways(
    experiment: Experiment, plan: Plan, name: str, draw: Callable[[Stage, Shots, Path], Outcome]
) -> tuple[list[Outcome], list[str]]:
    """Make a figure for each source and direction; returns them and what a reader must know."""
    made, notes = list[Outcome](), [UNCHOSEN]
    for source in plan.sources:
        stage = _stage(experiment, plan, source)
        for direction in DIRECTIONS:
            shots = stage.shots(direction)
            if shots is None:
                notes.append(f"{source.name}: no image to {direction} the {stage.shortcut}")
            else:
                made.append(draw(stage, shots, plan.out / f"{name}-{source.name}-{direction}.png"))
    return made, notes


def _stage(experiment: Experiment, plan: Plan, source: Source) -> Stage:
    images = experiment.size(plan.scale).get("images", IMAGES) if plan.n is None else plan.n
    return Stage(source, plan, images)
