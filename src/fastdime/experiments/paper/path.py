"""How a counterfactual comes about: the states, what the denoiser makes of them, and the masks over time."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fastdime.audit.pictures import Show
from fastdime.counterfactuals.methods import events
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
from fastdime.sheets import shown
from fastdime.types import Counterfactuals, Moment

METHOD = "fastdime"
FRAMES = 6  # moments before the last
COLUMNS = ("source", "direction", "image", "t", "mask_share", "change", "p_after", "valid", "oracle_ok")


def draw_path(stage: Stage, shots: Shots, path: Path, show: Show) -> Outcome:
    """Draw the way from some images to their counterfactuals."""
    explainer = stage.explainer(METHOD)
    record = moments_of(events(explainer.resolved))

    def draw() -> Drawn:
        with show(f"path {stage.source.name}: {shots.direction}") as progress:
            found = explain(explainer, shots, record=record)
            progress(1, 1)
        return Drawn(path_board(stage, shots, found), _path_rows(stage, shots, found))

    return kept(path, fingerprint({METHOD: explainer}, shots, record), draw)


def moments_of(steps: int) -> list[int]:
    """Choose the steps that are shown: evenly from the first to the last, with the one at half way.

    >>> moments_of(30)
    [0, 5, 10, 15, 20, 25, 29]
    """
    return sorted({*(number * steps // FRAMES for number in range(FRAMES)), steps - 1})


def _path_rows(stage: Stage, shots: Shots, found: Counterfactuals) -> list[Row]:
    rows = []
    for place, end in enumerate(stage.told(METHOD, shots, found)):
        for moment in found.trajectory if _was_tried(found, place) else ():
            change = float((moment.x0_hat[place] - shots.x[place]).abs().mean()) / 2
            told = {"t": moment.t, "mask_share": _share(moment.mask[place]), "change": round(change, 5)}
            rows.append({name: end[name] for name in ("source", "direction", "image", "method")} | told)
        rows.append(end | {"t": "end", "mask_share": _share(found.mask[place])})
    return rows


def _share(mask: Tensor) -> float:
    return round(float(mask.float().mean()), 4)


def _was_tried(found: Counterfactuals, place: int) -> bool:
    """Tell whether an attempt was kept: not if the image was in the class wanted, or every one ran away."""
    return bool(found.scale[place] > 0)


def path_board(stage: Stage, shots: Shots, found: Counterfactuals) -> Board:
    """Lay out three strips for each image: the states, what the denoiser makes of them, and the masks."""
    ends = stage.told(METHOD, shots, found)
    strips = [
        strip for place in range(len(shots.x)) for strip in _path_strips(shots, found, place, ends[place])
    ]
    titles = ["original", *(f"t = {moment.t}" for moment in found.trajectory), "counterfactual"]
    heading = f"{stage.source.name}: {shots.direction} the {stage.shortcut}, step by step (FastDiME)"
    legend = f"Mask: white = may change; the rest is put back from the original. {JUDGED} {FRAMED} {COLOURS}"
    return Board(heading, titles, strips, legend)


def _path_strips(shots: Shots, found: Counterfactuals, place: int, end: Row) -> list[Strip]:
    x, x_cf = shots.x[place], found.x_cf[place]
    tried = _was_tried(found, place)
    moments: Sequence[Moment] = found.trajectory if tried else ()
    name = shots.label(place) if tried else f"{shots.label(place)}\n(no attempt)"
    states = [Panel(image_of(moment.x_t[place])) for moment in moments]
    denoised = [Panel(image_of(moment.x0_hat[place])) for moment in moments]
    masks = [_mask_panel(moment.mask[place]) for moment in moments]
    gaps = [Panel()] * (len(found.trajectory) - len(moments))
    last = Panel(image_of(x_cf), judgement(end), failed(end))
    original = Panel(image_of(x), box=shots.box(place))
    change = Panel(difference_of(x, x_cf), [f"mean change {end['change']:.4f}"])
    return [
        Strip(f"{name}\n\nx_t", [original, *states, *gaps, last], apart=True),
        Strip("denoised", [Panel(), *denoised, *gaps, change]),
        Strip("mask", [Panel(), *masks, *gaps, _mask_panel(found.mask[place])]),
    ]


def _mask_panel(mask: Tensor) -> Panel:
    line = "no mask" if bool(mask.all()) else f"{100 * _share(mask):.1f} % may change"
    return Panel(shown(mask.numpy() * 2.0 - 1), [line])
