"""Label the rest of a table with a classifier of the part that people labelled, where the classifier is sure.

Numbers about the classifier come from images of patients that it was neither trained nor chosen on.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fastdime.classifiers.load import load_classifier
from fastdime.data.choice import annotated, predicted_column, probability_column
from fastdime.data.table import PATIENT, SPLIT, Table
from fastdime.errors import DataError, InputError, expected
from fastdime.experiments.predictions import Reading, Show, predict
from fastdime.files import write_atomically
from fastdime.training.pictures import read_pictures
from fastdime.training.recipes import ClassifierRecipe
from fastdime.training.request import recipe_for, settings_for, task_for
from fastdime.training.run import train

PARTS = 5  # of the labelled images: one scores, one validates, the rest trains
ROWS = "rows.json"  # which images a classifier was fitted on
TEST = "test"  # the split that nothing is fitted on
MOST_SEEDS = 2**32  # that scikit-learn knows


@dataclass(frozen=True)
class Rule:
    """What to label, and when the classifier is sure enough.

    Attributes:
        column: labels of 0, 1 or nothing.
        high, low: above and below these probabilities an image gets label 1 and 0; the paper's values.
        group: column of what must not be parted, such as patients; None = `patient` if the table has it.
    """

    column: str
    high: float = 0.8
    low: float = 0.01
    group: str | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that cross."""
        if not 0 <= self.low < self.high <= 1:
            got = f"--low {self.low:g} and --high {self.high:g}"
            raise InputError(expected("bounds of the probability", "0 <= low < high <= 1", got))
        if self.group == self.column:
            raise InputError(expected("--group", "another column than the labels", repr(self.group)))

    def groups(self, table: Table) -> tuple[str, ...]:
        """Return the group of each image."""
        name = self.group or (PATIENT if PATIENT in table.groups else None)
        return table.ids if name is None else table.grouping(name)


@dataclass(frozen=True)
class Fit:
    """How the classifier comes to be.

    Attributes:
        folder: of the training; called again with it, a fit that was stopped goes on.
        recipe: of a task model, see `fastdime.training.recipes`.
        architecture: another network than the recipe's.
        changes: fields of TrainSettings that differ from the recipe's.
    """

    folder: Path
    recipe: str = "small"
    architecture: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"


@dataclass(frozen=True)
class PseudoLabelled:
    """The table with more labels, and a report of plain values."""

    table: Table
    report: dict[str, Any]


def pseudo_label(
    table: Table, rule: Rule, source: Fit | str | Path, reading: Reading, show: Show
) -> PseudoLabelled:
    """Label images that have none.

    Args:
        source: how to fit a classifier on the labelled images, or the folder of one that is trained.
        show: opens a progress display of something: `fastdime.terminal.progress_of`.

    Returns:
        A table in which the column has more labels, and two more columns: COLUMN_predicted is 1 where the
        label is a prediction, COLUMN_probability what the classifier said of the images that had none.
    """
    known = [row for row, is_known in enumerate(annotated(table, rule.column)) if is_known]
    rest = sorted(set(range(len(table))) - set(known))
    learned = _learned(table, known) if isinstance(source, Fit) else known
    if not learned:
        got = "labels in split 'test' alone" if known else "none"
        raise DataError(expected(f"column {rule.column!r}", "labels to learn from", got, "label some images"))
    if isinstance(source, Fit):
        reading = replace(reading, size=reading.size or recipe_for("task", source.recipe).size)
        scored = _fit(table, learned, rule, source, reading, show)
    else:
        scored = known
    folder = source.folder / "classifier" if isinstance(source, Fit) else source
    classifier = load_classifier(folder)
    reading = replace(reading, channels=reading.channels or classifier.channels)
    found = predict(classifier, table, [*scored, *rest], reading, show)
    labels, counts = _labels(table, rule, rest, found.chances)
    report = {
        "column": rule.column,
        "classifier": str(folder),
        "labelled_before": len(known),
        "left_out_of_split_test": len(known) - len(learned),
        "scored_on": "held-out images" if isinstance(source, Fit) else "all labelled images",
        **_scores(table, rule, [row for row in scored if row in found.chances], found.chances),
        **counts,
        "unreadable": len(found.errors),
        "first_unreadable": found.errors[0] if found.errors else None,
    }
    return PseudoLabelled(replace(table, labels={**table.labels, **labels}), report)


def _learned(table: Table, known: Sequence[int]) -> list[int]:
    """Leave out the images of the test split: whatever uses the labels is tested on them."""
    splits = table.groups.get(SPLIT)
    return [row for row in known if splits is None or splits[row] != TEST]


def _fit(table: Table, known: Sequence[int], rule: Rule, fit: Fit, reading: Reading, show: Show) -> list[int]:
    """Train a classifier; return the rows that it has not seen."""
    recipe = recipe_for("task", fit.recipe)
    part = table.take(known)
    settings = settings_for(recipe, fit.changes, len(part))
    parts = trains, validates, scores = parted(part.binary(rule.column), rule.groups(part), settings.seed)
    _settle(fit.folder, part, rule.column, parts)
    used = [*trains, *validates]
    with show("images") as progress:
        pictures = read_pictures(part.take(used), label=rule.column, progress=progress, **reading.options())
    order = torch.arange(len(used))
    halves = pictures.only(order[: len(trains)]), pictures.only(order[len(trains) :])
    # A rare class that counts as much as the other would make the network say it too readily.
    plain = replace(recipe, balance=False) if isinstance(recipe, ClassifierRecipe) else recipe
    task = task_for(plain, *halves, {"architecture": fit.architecture})
    settings = settings_for(recipe, fit.changes, len(trains))
    with show("updates") as progress, _own_option():
        train(task, settings, fit.folder, progress, device=fit.device)
    return [known[row] for row in scores]


@contextmanager
def _own_option() -> Iterator[None]:
    """Training calls its folder --out, which is something else here."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("another --out", "another --work")) from None


def parted(
    labels: Sequence[float], groups: Sequence[str], seed: int
) -> tuple[list[int], list[int], list[int]]:
    """Part rows into those that train, validate and score, with both labels in each, never within a group."""
    from sklearn.model_selection import StratifiedGroupKFold

    for label in (0, 1):
        found = len({group for group, value in zip(groups, labels, strict=True) if value == label})
        if found < PARTS:
            wanted = f"label {label} in at least {PARTS} groups (patients, or images)"
            raise DataError(expected("labelled images", wanted, found, "label more images"))
    splitter = StratifiedGroupKFold(PARTS, shuffle=True, random_state=seed % MOST_SEEDS)
    folds = [rows.tolist() for _, rows in splitter.split(labels, labels, groups)]
    return sorted(row for fold in folds[2:] for row in fold), sorted(folds[1]), sorted(folds[0])


def _settle(folder: Path, part: Table, column: str, parts: Sequence[Sequence[int]]) -> None:
    """A classifier of other images, labels or parts would be scored on what it has learned."""
    text = "\n".join(f"{name}\t{label}" for name, label in zip(part.ids, part.binary(column), strict=True))
    content = {
        "column": column,
        "labelled": hashlib.sha256(text.encode()).hexdigest()[:16],
        "parts": {
            name: [part.ids[row] for row in rows]
            for name, rows in zip(("train", "val", "scored"), parts, strict=True)
        },
    }
    path = folder / ROWS
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")) != content:
            wanted = "the same labelled images in the same parts"
            got = "a classifier that was fitted on others (other images, labels, --group or seed)"
            raise InputError(expected(str(folder), wanted, got, "choose another --work"))
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content).encode())


def _scores(table: Table, rule: Rule, rows: Sequence[int], chances: Mapping[int, float]) -> dict[str, Any]:
    """Compare predictions with the labels of a person: in all, and where the classifier is sure."""
    from sklearn.metrics import roc_auc_score

    labels = [table.column(rule.column)[row] for row in rows]
    found = [chances[row] for row in rows]
    high = [label == 1 for label, chance in zip(labels, found, strict=True) if chance > rule.high]
    low = [label == 0 for label, chance in zip(labels, found, strict=True) if chance < rule.low]
    right = [(chance > 0.5) == (label == 1) for label, chance in zip(labels, found, strict=True)]
    return {
        "scored_images": len(rows),
        "scored_groups": len(set(rule.groups(table.take(rows)))),
        "accuracy": _share(right),
        "auroc": float(roc_auc_score(labels, found)) if len(set(labels)) == 2 else None,
        "sure_of_1": len(high),
        "right_of_these_1": _share(high),
        "sure_of_0": len(low),
        "right_of_these_0": _share(low),
    }


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None


def _labels(
    table: Table, rule: Rule, rest: Sequence[int], chances: Mapping[int, float]
) -> tuple[dict[str, tuple[float, ...]], dict[str, int]]:
    values = list(table.column(rule.column))
    marks, shown = [0.0] * len(table), [math.nan] * len(table)
    for row in rest:
        chance = shown[row] = chances.get(row, math.nan)
        values[row] = 1.0 if chance > rule.high else 0.0 if chance < rule.low else math.nan
        marks[row] = float(not math.isnan(values[row]))
    columns = {
        rule.column: tuple(values),
        predicted_column(rule.column): tuple(marks),
        probability_column(rule.column): tuple(shown),
    }
    new = [values[row] for row in rest]
    return columns, {
        "labelled_1": new.count(1),
        "labelled_0": new.count(0),
        "left_blank": sum(map(math.isnan, new)),
    }
