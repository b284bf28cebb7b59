"""The images of a report: those that moved most and least, with their pictures and predictions."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastdime.audit.schema import Generator, Row
from fastdime.errors import FastdimeError
from fastdime.pipeline.pairs import Pairs, pairs_of_run
from fastdime.report.folder import AuditFolder, Change, Subject
from fastdime.report.pictures import Picture, Shelf, pair_pictures, state, where_there
from fastdime.report.words import asked_about, counted
from fastdime.runs import Record, file_stem

EDIT, PLACEBO, TRUTH, SMOOTHGRAD, PATH = "edit", "placebo", "truth", "smoothgrad", "path"
MOST_ANSWERS = 8  # on one card
STRIPS, STATES = 4, 8  # paths that are shown, and pictures of each
Tell = Callable[[], None]


@dataclass(frozen=True)
class Prediction:
    """The probability that a model gives before and after the edit."""

    who: str
    change: Change


@dataclass(frozen=True)
class Card:
    """One image; `change` and `effect` are those it is sorted by."""

    image_id: str
    rank: str
    direction: str
    group: str
    facts: Mapping[str, str]
    change: float
    effect: float | None
    predictions: tuple[Prediction, ...]
    unnamed: int
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Strip:
    """The path of one image."""

    image_id: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Gallery:
    """Cards about one shortcut, or of one run, and a sentence about which of how many these are.

    Attributes:
        of: images that there are.
        config: what the run folder of the edits says about their making.
    """

    title: str
    sentence: str
    cards: tuple[Card, ...] = ()
    strips: tuple[Strip, ...] = ()
    of: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Desk:
    """What cards are made with: the shelf for pictures, how many cards, and whom to tell of each."""

    shelf: Shelf
    limit: int
    tell: Tell


def chosen(moved: Mapping[str, float], limit: int) -> tuple[list[str], list[str]]:
    """Choose the ids that moved most, and those that moved least; half of each.

    >>> chosen({"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2}, 3)
    (['b', 'c'], ['a'])
    """
    order = sorted(moved, key=lambda name: (-moved[name], name))
    most = order[: -(-min(limit, len(order)) // 2)]
    rest = order[len(most) :]
    least = rest[len(rest) - min(limit // 2, len(rest)) :]
    return most, least[::-1]


def audit_gallery(folder: AuditFolder, generator: Generator, desk: Desk) -> Gallery:
    """Make the cards of one shortcut."""
    title = generator.shortcut
    subjects = folder.subjects.get(generator.shortcut, {})
    row = folder.leading(generator.shortcut)
    if row is None or not subjects:
        return Gallery(title, "No model was asked about images of this shortcut.")
    if generator.bundle is None:
        return Gallery(title, "The pictures were made elsewhere, so none are shown.", of=len(subjects))
    edits = folder.path / generator.folder / EDIT
    try:
        pairs = pairs_of_run(edits)
    except FastdimeError as error:
        reason = str(error).replace(str(edits), f"{generator.folder}/{EDIT}")
        return Gallery(title, f"The edits cannot be shown: {reason}.", of=len(subjects))
    place = _AuditCards(folder, generator, row, pairs, desk)
    return place.gallery(subjects)


@dataclass(frozen=True)
class _AuditCards:
    folder: AuditFolder
    generator: Generator
    row: Row
    pairs: Pairs
    desk: Desk

    def gallery(self, subjects: Mapping[str, Subject]) -> Gallery:
        key = (self.row.model, self.row.output)
        places = {name: number for number, name in enumerate(self.pairs.ids)}
        moved = {
            name: abs(change.change)
            for name, subject in subjects.items()
            if name in places and (change := subject.changes.get(key)) and change.change is not None
        }
        most, least = chosen(moved, self.desk.limit)
        cards = [self.card(subjects[name], "moved most", places[name]) for name in most]
        cards += [self.card(subjects[name], "moved least", places[name]) for name in least]
        who = asked_about(self.row, self.folder.audit)
        sentence = told(len(most), len(least), len(subjects), f", ranked by the change of {who}")
        strips = self.strips(sorted(moved))
        return Gallery(
            self.generator.shortcut, sentence, tuple(cards), strips, len(subjects), self.pairs.config
        )

    def card(self, subject: Subject, rank: str, number: int) -> Card:
        leading = subject.changes[self.row.model, self.row.output]
        names = {
            (row.model, row.output): asked_about(row, self.folder.audit)
            for row in self.folder.audit.rows
            if row.shortcut == self.row.shortcut
        }
        given = [Prediction(names[key], found) for key, found in subject.changes.items() if key in names]
        card = Card(
            subject.image_id,
            rank,
            "removed" if subject.has else "added",
            subject.group,
            subject.facts,
            leading.change or 0.0,
            leading.effect,
            tuple(given[:MOST_ANSWERS]),
            max(0, len(given) - MOST_ANSWERS),
            tuple(self.pictures(subject, number)),
        )
        self.desk.tell()
        return card

    def pictures(self, subject: Subject, number: int) -> list[Picture]:
        name, shelf = subject.image_id, self.desk.shelf
        done = f"{self.generator.shortcut} {'removed' if subject.has else 'added'}"
        *pair, mask = pair_pictures(shelf, self.pairs, self.pairs.places[number], done)
        home, file = self.folder.path / self.generator.folder, f"{file_stem(name)}.png"
        maps = [
            (f"SmoothGrad, {model}", f"SmoothGrad of {model} for {name}", path / file)
            for model, path in self.saliency.items()
        ]
        others = [
            ("Placebo", f"Placebo edit of {name}", home / PLACEBO / file),
            ("Exact truth", f"Exact counterfactual of {name}: {done}", home / TRUTH / file),
        ]
        return [*pair, *where_there(shelf, maps), mask, *where_there(shelf, others)]

    @property
    def saliency(self) -> dict[str, Path]:
        """Folders of SmoothGrad pictures by model, the one that ranks the images first."""
        home = self.folder.path / self.generator.folder / SMOOTHGRAD
        there = {path.name: path for path in home.iterdir()} if home.is_dir() else {}
        models = dict.fromkeys([self.row.model, *(row.model for row in self.folder.audit.rows)])
        found = {model: there.get(file_stem(model), there.get(model)) for model in models if model}
        return {model: path for model, path in found.items() if path is not None}

    def strips(self, ids: Sequence[str]) -> tuple[Strip, ...]:
        """Show the paths of the first images that have one."""
        home = self.folder.path / self.generator.folder / PATH
        there = set(os.listdir(home)) if home.is_dir() else set()
        named = [name for name in ids if file_stem(name) in there][: min(STRIPS, self.desk.limit)]
        return tuple(Strip(name, self.states(name, home / file_stem(name))) for name in named)

    def states(self, name: str, folder: Path) -> tuple[Picture, ...]:
        steps = sorted(int(path.stem) for path in folder.glob("*.png") if path.stem.isdecimal())
        return tuple(state(self.desk.shelf, name, folder, step) for step in thinned(steps, STATES))


def thinned(values: Sequence[int], most: int) -> list[int]:
    """Take so many values, evenly, with the first and the last.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def told(most: int, least: int, of: int, by: str = "") -> str:
    """Say which images of how many are shown."""
    if not most:
        return f"None of {counted(of, 'image')} can be shown here."
    if most + least == of:
        return f"All {counted(of, 'image')}{by}."
    parts = f"the {most} that moved most" + (f" and the {least} that moved least" if least else "")
    return f"{most + least} of {counted(of, 'image')}: {parts}{by}."


def run_gallery(pairs: Pairs, desk: Desk) -> Gallery:
    """Make the cards of a plain run."""
    moved = {
        record["id"]: abs(record["p_after"] - record["p_before"])
        for record in pairs.records
        if None not in (record["p_after"], record["p_before"])
    }
    most, least = chosen(moved, desk.limit)
    places = {name: number for number, name in enumerate(pairs.ids)}
    make = partial(_run_card, pairs, desk)
    cards = [make(places[name], "moved most") for name in most]
    cards += [make(places[name], "moved least") for name in least]
    return Gallery("Images", told(len(most), len(least), len(pairs)), tuple(cards), of=len(pairs))


def _run_card(pairs: Pairs, desk: Desk, number: int, rank: str) -> Card:
    record: Record = pairs.records[number]
    before, after, target = record["p_before"], record["p_after"], record["target"]
    change = Change(before, after, None, None, after - before, None)
    facts = {"target": "reached" if record["valid"] else "not reached"}
    direction = f"class {record['predicted']} to {target}"
    pictures = pair_pictures(desk.shelf, pairs, pairs.places[number], f"made for class {target}")
    desk.tell()
    given = (Prediction(f"p(class {target})", change),)
    return Card(record["id"], rank, direction, "", facts, after - before, None, given, 0, tuple(pictures))
