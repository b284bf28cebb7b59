"""Task models: networks trained on chosen images, so that it is known how far they can lean on a shortcut."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from fastdime.data.table import Table
from fastdime.errors import DataError, InputError, expected, unknown
from fastdime.training.augment import Augment
from fastdime.training.classifying import Classifying
from fastdime.training.loop import Progress
from fastdime.training.mending import Mended, Mending, Partners, with_partners
from fastdime.training.pictures import Pictures, read_pictures
from fastdime.training.recipes import ClassifierRecipe
from fastdime.training.request import settings_for, task_for
from fastdime.training.run import Trained, train
from fastdime.training.settings import TrainSettings


@dataclass(frozen=True)
class ModelRecipe(ClassifierRecipe):
    """How a task model is trained; fields as in ClassifierRecipe and `io.read`.

    Attributes:
        start: folder or file with weights to begin with; the published networks begin with ImageNet's.
        resizes: whether the network resizes what it is asked about to the size that it was trained on.
    """

    channels: int | None = None
    convert: bool = False
    start: Path | None = None
    resizes: bool = True


MODELS: Mapping[str, ModelRecipe] = MappingProxyType(
    {
        "resnet18": ModelRecipe(
            {"batch_size": 32, "learning_rate": 5e-4, "warmup": 100, "ema": 0.99, "patience": 10},
            architecture="resnet18",
            augment=Augment(shift=8),
            epochs=50,
            size=224,
            note="The published network at the published size. It begins with random weights, so its rate is "
            "higher than the published one.",
        ),
        "small": ModelRecipe(
            {
                "steps": 500,
                "batch_size": 32,
                "learning_rate": 3e-3,
                "warmup": 100,
                "ema": 0.99,
                "validate_every": 50,
            },
            architecture="small-resnet",
            augment=Augment(shift=3),
            resizes=False,
            note="For phantoms, and for machines without a GPU.",
        ),
    }
)


@dataclass(frozen=True)
class Ids:
    """Which images are trained on, and which choose the weights that are kept; in any order."""

    train: Sequence[str]
    val: Sequence[str]

    def __post_init__(self) -> None:
        """Refuse images that are named twice."""
        for name, ids in (("train on", self.train), ("validate on", self.val)):
            if not ids:
                remedy = "hold some of the others out" if name == "validate on" else ""
                raise InputError(expected(f"ids to {name}", "one or more", "none", remedy))
        seen: set[str] = set()
        for image in (*self.train, *self.val):
            if image in seen:
                raise InputError(expected("ids to train and validate on", "each once", f"{image!r} twice"))
            seen.add(image)


@dataclass(frozen=True)
class Examples:
    """What a task model learns from; images stay where they are.

    Attributes:
        task: column to be learned.
        shortcut: column of the shortcut; only needed to balance.
        partners: files with counterfactuals, by the id of the image they were made from. Not every image
            needs one; those of other images are not looked at. They must have the size at which images are
            trained on: a file that had to be resized could be told from an image by its blur.
    """

    table: Table
    task: str
    ids: Ids
    shortcut: str | None = None
    partners: Mapping[str, Path] = field(default_factory=dict)


def train_task_model(
    examples: Examples,
    out: Path,
    recipe: ModelRecipe = MODELS["resnet18"],
    seed: int = 0,
    mending: Mending | None = None,
    progress: Progress | None = None,
    *,
    device: str = "auto",
) -> Trained:
    """Train a task model, or go on with it, or return it if it is done; the order of ids does not matter.

    With counterfactuals, those of the validation images have a say in which weights are kept.

    Args:
        out: folder of the run; its `classifier` opens with `load_classifier`.
        progress: called with (updates done, updates).

    Raises:
        InputError: an id or a column is not known, or `out` was begun with other images or settings.
        DataError: an image cannot be used, or a label is missing.
    """
    if examples.partners and (mending is None or not mending.needs_partners):
        remedy = "mend with augment or consistency, or leave them out"
        raise InputError(
            expected("counterfactuals", "none for this training", len(examples.partners), remedy)
        )
    settings = model_settings(recipe, seed, len(examples.ids.train))
    balance = mending is not None and mending.balance
    training = _read(examples, "train", recipe, balance)
    validation = _read(examples, "val", recipe, balance, like=training.pictures)
    if mending is None:
        task = model_task(recipe, training.pictures, validation.pictures)
    else:
        task = _mended(recipe, training, validation.joined(), mending)
    return train(task, settings, out, progress, start=recipe.start, device=device)


def model_recipe(name: str) -> ModelRecipe:
    """Look a recipe up."""
    if name not in MODELS:
        raise InputError(unknown("recipe of the task model", name, MODELS))
    return MODELS[name]


def model_settings(recipe: ModelRecipe, seed: int, images: int) -> TrainSettings:
    """Return the settings of a recipe for so many images; if it counts in updates, as they are written."""
    written = recipe.settings if recipe.epochs is None else {}
    return settings_for(recipe, {**written, "seed": seed}, images)


def model_task(recipe: ModelRecipe, training: Pictures, validation: Pictures) -> Classifying:
    """Put a recipe and images together."""
    task = task_for(recipe, training, validation, {})
    assert isinstance(task, Classifying)
    spec = task.spec if recipe.resizes else task.spec.model_copy(update={"size": None})
    return Classifying(**{**vars(task), "spec": spec})


@dataclass(frozen=True)
class _Part:
    """Images to train or to validate on, with what mending needs to know."""

    pictures: Pictures
    partners: Partners | None
    shortcut: Tensor | None

    def joined(self) -> "_Part":
        """Take counterfactuals for images of their own."""
        if self.partners is None:
            return self
        pictures, shortcut = with_partners(self.pictures, self.partners), self.shortcut
        if shortcut is not None:
            shortcut = torch.cat([shortcut, 1 - shortcut[self.partners.rows]])
        return _Part(pictures, None, shortcut)


def _mended(recipe: ModelRecipe, training: _Part, validation: _Part, mending: Mending) -> Mended:
    plain = model_task(recipe, training.pictures, validation.pictures)
    return Mended(
        **vars(plain),
        mending=mending,
        partners=training.partners,
        shortcut=training.shortcut,
        valid_shortcut=validation.shortcut,
    )


def _read(
    examples: Examples, part: str, recipe: ModelRecipe, balance: bool, like: Pictures | None = None
) -> _Part:
    ids = examples.ids.train if part == "train" else examples.ids.val
    table = _rows(examples.table, sorted(ids))
    _labels(table, examples.task)
    shortcut = None
    if balance:
        if examples.shortcut is None:
            raise InputError(expected("shortcut", "a column of the table, to balance by", "none"))
        shortcut = torch.tensor(_labels(table, examples.shortcut))
    pictures = read_pictures(
        table,
        label=examples.task,
        size=recipe.size,
        channels=recipe.channels,
        convert=recipe.convert,
        like=like,
    )
    return _Part(pictures, _partners(examples, table, pictures), shortcut)


def _rows(table: Table, ids: Iterable[str]) -> Table:
    row_of = {image: row for row, image in enumerate(table.ids)}
    wanted = list(ids)
    for image in wanted:
        if image not in row_of:
            raise InputError(unknown("id of an image", image, row_of))
    return table.take(row_of[image] for image in wanted)


def _labels(table: Table, column: str) -> Sequence[float]:
    values = table.binary(column)
    for row, value in enumerate(values):
        if math.isnan(value):
            place = f"{table.place(row)}column {column!r} of image {table.ids[row]!r}"
            raise DataError(expected(place, "0 or 1", "a blank", "leave the image out"))
    return values


def _partners(examples: Examples, table: Table, pictures: Pictures) -> Partners | None:
    rows = [row for row, image in enumerate(table.ids) if image in examples.partners]
    if not rows:
        return None
    ids = tuple(table.ids[row] for row in rows)
    files = Table(ids, tuple(examples.partners[image] for image in ids), source="counterfactual")
    return Partners(read_pictures(files, like=pictures), torch.tensor(rows))
