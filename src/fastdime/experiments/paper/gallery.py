"""Counterfactuals of several methods side by side, with what each has changed; failures are marked."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fastdime.audit.pictures import Progress, Show
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import cost
from fastdime.experiments.paper.experiment import Outcome, Row
from fastdime.experiments.paper.panels import COLOURS, Board, Panel, Strip, difference_of, image_of
from fastdime.experiments.paper.stage import (
    FRAMED,
    JUDGED,
    Drawn,
    Shots,
    Stage,
    explain,
    failed,
    fingerprint,
    judgement,
    kept,
)
from fastdime.types import Counterfactuals

METHODS = ("dime", "ace-l1", "fastdime", "fastdime-2+", "maskdime", "turbo")
WRITTEN = {
    "dime": "DiME",
    "ace-l1": "ACE l1",
    "fastdime": "FastDiME",
    "fastdime-2+": "FastDiME-2+",
    "maskdime": "MaskDiME",
    "turbo": "turbo (ours)",
}


def draw_gallery(stage: Stage, shots: Shots, path: Path, methods: Sequence[str], show: Show) -> Outcome:
    """Draw the counterfactuals of some images, those that failed among them."""
    explainers = {method: stage.explainer(method) for method in methods}

    def draw() -> Drawn:
        with show(f"gallery {stage.source.name}: {shots.direction}") as progress:
            found = _explained(explainers, shots, progress)
        rows = {method: stage.told(method, shots, found[method]) for method in methods}
        return Drawn(
            gallery_board(stage, shots, found, rows), [row for part in rows.values() for row in part]
        )

    return kept(path, fingerprint(explainers, shots), draw)


def _explained(
    explainers: dict[str, Explainer], shots: Shots, progress: Progress
) -> dict[str, Counterfactuals]:
    costs = [cost(explainer.resolved)[0] for explainer in explainers.values()]
    found = {}
    for number, (method, explainer) in enumerate(explainers.items(), 1):
        found[method] = explain(explainer, shots)
        progress(sum(costs[:number]), sum(costs))
    return found


def gallery_board(
    stage: Stage, shots: Shots, found: dict[str, Counterfactuals], rows: dict[str, list[Row]]
) -> Board:
    """Lay out two strips for each image: counterfactuals, and below them what they changed."""
    strips = [
        strip
        for place in range(len(shots.x))
        for strip in _compared(
            shots,
            place,
            [found[method].x_cf[place] for method in found],
            [rows[method][place] for method in found],
        )
    ]
    titles = ["original", *(WRITTEN.get(method, method) for method in found), *_exact_title(shots)]
    heading = f"{stage.source.name}: {shots.direction} the {stage.shortcut}"
    box = f" Orange box: the {stage.shortcut}." if stage.source.exact else ""
    return Board(heading, titles, strips, f"{JUDGED} {COLOURS}{box} {FRAMED}")


def _compared(shots: Shots, place: int, made: Sequence[Tensor], rows: Sequence[Row]) -> list[Strip]:
    x = shots.x[place]
    counterfactuals = [
        Panel(image_of(x_cf), judgement(row), failed(row)) for x_cf, row in zip(made, rows, strict=True)
    ]
    differences = [
        Panel(difference_of(x, x_cf), [f"mean change {row['change']:.4f}"])
        for x_cf, row in zip(made, rows, strict=True)
    ]
    exact = [] if shots.truth is None else [shots.truth[place]]
    counterfactuals += [Panel(image_of(image), box=shots.box(place, exact=True)) for image in exact]
    differences += [Panel(difference_of(x, image)) for image in exact]
    original = Panel(image_of(x), box=shots.box(place))
    return [
        Strip(shots.label(place), [original, *counterfactuals], apart=True),
        Strip("difference to\nthe original", [Panel(), *differences]),
    ]


def _exact_title(shots: Shots) -> list[str]:
    return [] if shots.truth is None else ["exact truth"]
