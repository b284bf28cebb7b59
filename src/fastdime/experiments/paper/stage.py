"""What the figures of a source are made of: its first images, its explainers and its oracle."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from fastdime import __version__
from fastdime.bundles import Bundle, load_bundle
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.configs import read_json
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.targets import Target
from fastdime.data.phantoms.phantom import phantom
from fastdime.errors import InputError, expected
from fastdime.experiments.paper.experiment import Outcome, Plan, Row, Source
from fastdime.experiments.paper.panels import Board, Box, write_board
from fastdime.experiments.paper.sources import first_rows, read_pixels
from fastdime.experiments.truth import Direction, Pairs, pairs, yes
from fastdime.files import write_atomically
from fastdime.pipeline.options import described, device_of, moved
from fastdime.types import Counterfactuals

SEED = 35_000  # of subjects for figures alone; nothing was trained, tuned or scored on them
IMAGES = 3  # of a source and a direction, unless the experiment says another number
SHORT, LONGEST = 7, 14  # letters of an id that fit beside "image", and below it
PART, WHOLE = "shortcut", "complete"  # oracles
COLUMNS = (
    *("source", "direction", "image", "method"),
    *("p_before", "p_after", "valid", "oracle_ok", "whole_ok", "change"),
)
JUDGED = "Guide: its probability of the class wanted, before -> after."
FRAMED = (
    "Red frame: the target was not reached, says the oracle, a network that had no part in it "
    "(the guide, if there is none). Only in part: not all of the shortcut shows."
)


@dataclass(frozen=True)
class Shots:
    """Images to change in one direction; `truth` are the exact counterfactuals, where they are known."""

    ids: tuple[str, ...]
    x: Tensor
    direction: Direction
    truth: Tensor | None = None

    @property
    def target(self) -> int:
        """The class of the guide that is wanted."""
        return int(self.direction == "add")

    def label(self, place: int) -> str:
        """Name an image on the left of a figure; of a long id only the end has room."""
        name = self.ids[place]
        return f"image {name}" if len(name) <= SHORT else f"image\n{name[-LONGEST:]}"

    def box(self, place: int, *, exact: bool = False) -> Box | None:
        """Return where the shortcut is in an image, or in the exact counterfactual; None if not known."""
        if self.truth is None or exact != (self.direction == "add"):
            return None
        down, across = Pairs(self.x, self.truth, self.target).region[place, 0].nonzero().unbind(1)
        return int(across.min()), int(down.min()), int(across.max()), int(down.max())


@dataclass(frozen=True)
class Stage:
    """A source with its models, on the device of a plan."""

    source: Source
    plan: Plan
    images: int

    @cached_property
    def bundle(self) -> Bundle:
        """Denoiser and guide."""
        return load_bundle(self.source.bundle)

    @cached_property
    def oracles(self) -> dict[str, ImageClassifier]:
        """The networks of the bundle that judge whether some part, or the whole, of the shortcut shows."""
        return {name: self.bundle.oracle(name) for name in (PART, WHOLE) if name in self.bundle.oracles}

    @property
    def shortcut(self) -> str:
        """What the shortcut is called."""
        return phantom(self.source.name).study.shortcut if self.source.exact else self.source.shortcut

    def explainer(self, method: str, classifier: ImageClassifier | None = None) -> Explainer:
        """Return a method with the settings of the bundle; it explains the guide unless told otherwise."""
        explainer = replace(Explainer.from_bundle(self.bundle, method), seed=self.plan.seed)
        if classifier is not None:
            explainer = replace(explainer, classifier=classifier)
        return moved(explainer, self.plan.device)

    def shots(self, direction: Direction) -> Shots | None:
        """Return the first images of the source, without a look at them; None where there are none."""
        if self.source.table is None:
            drawn = pairs(self.source.name, self.images, direction, SEED)
            return Shots(tuple(map(str, range(self.images))), drawn.x, direction, drawn.truth)
        table = first_rows(self.source, self.source.table, direction, self.images)
        return Shots(table.ids, read_pixels(table, self.bundle), direction) if len(table) else None

    def told(self, method: str, shots: Shots, found: Counterfactuals) -> list[Row]:
        """Say in numbers what came of each image: one row of COLUMNS for each."""
        part, whole = (self.reached(name, found.x_cf, shots.target) for name in (PART, WHOLE))
        change = (found.x_cf - shots.x).abs().flatten(1).mean(1) / 2  # on the scale from 0 to 1
        return [
            {
                "source": self.source.name,
                "direction": shots.direction,
                "image": shots.ids[place],
                "method": method,
                "p_before": round(float(found.p_before[place]), 4),
                "p_after": round(float(found.p_after[place]), 4),
                "valid": bool(found.valid[place]),
                "oracle_ok": part[place],
                "whole_ok": whole[place],
                "change": round(float(change[place]), 5),
            }
            for place in range(len(shots.x))
        ]

    def reached(self, oracle: str, x_cf: Tensor, target: int) -> list[bool | None]:
        """Ask an oracle whether each image shows the shortcut as wanted; None where there is no oracle."""
        if oracle not in self.oracles:
            return [None] * len(x_cf)
        return [bool(p > 0.5) == bool(target) for p in yes(self.oracles[oracle], x_cf)]


def failed(row: Row) -> bool:
    """Tell whether a counterfactual missed its target, as the oracle says, or the guide without one."""
    return not (row["valid"] if row["oracle_ok"] is None else row["oracle_ok"])


def judgement(row: Row) -> list[str]:
    """Say below a counterfactual what guide and oracle think of it."""
    words = {True: "oracle: reached", False: "oracle: NOT reached", None: "no oracle"}
    in_part = row["oracle_ok"] and row["whole_ok"] is False  # something was added, but not all of it
    said = "oracle: only in part" if in_part else words[row["oracle_ok"]]
    return [f"guide {row['p_before']:.2f} -> {row['p_after']:.2f}", said]


def explain(
    explainer: Explainer, shots: Shots, target: Target | None = None, record: Iterable[int] = ()
) -> Counterfactuals:
    """Make the counterfactuals of some images, on the device of the models; the result is on the CPU."""
    wanted = shots.target if target is None else target
    found = explainer(shots.x.to(device_of(explainer)), wanted, ids=shots.ids, record=tuple(record))
    path = tuple(replace(moment, **_on_cpu(moment)) for moment in found.trajectory)
    return replace(found, **_on_cpu(found), trajectory=path)


def _on_cpu(record: Any) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: value.cpu() for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class Drawn:
    """A figure before it is written, with what it shows in numbers and what a reader must know."""

    board: Board
    rows: list[Row]
    notes: tuple[str, ...] = ()


def kept(path: Path, asked: str, make: Callable[[], Drawn]) -> Outcome:
    """Make a figure with its rows beside it, unless both are there and the same was asked.

    The outcome names no columns: it is a part of one that does.

    Args:
        asked: a fingerprint of all that decides what is drawn.

    Raises:
        InputError: another figure is there; one that lacked something, as its notes say, is made again.
    """
    beside = path.with_suffix(".json")
    old = read_json(beside) if path.is_file() and beside.is_file() else {}
    if old.get("asked") == asked:
        return Outcome(old["rows"], (), (path,), tuple(old["notes"]))
    if old and not old["notes"]:
        wanted, got = (
            "the figure of the same command",
            "one of another --seed, other images, models or version",
        )
        raise InputError(expected(str(path), wanted, got, "choose another --out"))
    drawn = make()
    write_board(path, drawn.board)
    content = {"asked": asked, "rows": drawn.rows, "notes": drawn.notes}
    write_atomically(beside, f"{json.dumps(content, indent=1)}\n".encode())
    return Outcome(drawn.rows, (), (path,), drawn.notes)


def fingerprint(explainers: Mapping[str, Explainer], shots: Shots, *others: object) -> str:
    """Return what changes with the methods, their settings and weights, the images, or anything given."""
    methods = {
        name: [
            each.resolved.model_dump(mode="json"),
            each.seed,
            described(each.denoiser, None),
            described(each.classifier, None),
        ]
        for name, each in explainers.items()
    }
    told = json.dumps([__version__, methods, shots.ids, shots.direction, others], default=str)
    return hashlib.sha256(told.encode() + shots.x.numpy().tobytes()).hexdigest()[:16]


def joined(parts: Iterable[Outcome], columns: tuple[str, ...], notes: Iterable[str]) -> Outcome:
    """Make one outcome of several, with each note said once."""
    all_parts = list(parts)
    said = dict.fromkeys([*notes, *(note for part in all_parts for note in part.notes)])
    rows = [row for part in all_parts for row in part.rows]
    return Outcome(rows, columns, tuple(path for part in all_parts for path in part.pictures), tuple(said))
