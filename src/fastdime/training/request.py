"""One training as a user asks for it: a table, a recipe, and what is to be different."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, get_args

from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.spec import ClassifierSpec, architecture
from fastdime.configs import checked
from fastdime.data.splits import NONE
from fastdime.data.table import Table, read_table
from fastdime.diffusion.denoiser import Prediction
from fastdime.errors import InputError, expected, unknown
from fastdime.training.augment import Augment
from fastdime.training.cards import write_card
from fastdime.training.choice import Choice, Chosen, choose
from fastdime.training.classifying import Classifying
from fastdime.training.coverage import phantom_coverage
from fastdime.training.denoising import Denoising
from fastdime.training.devices import processes
from fastdime.training.emphasis import emphasis, open_guide
from fastdime.training.pictures import Pictures, read_pictures
from fastdime.training.recipes import (
    DENOISERS,
    GUIDES,
    RECIPES,
    TASKS,
    ClassifierRecipe,
    DenoiserRecipe,
    Kind,
)
from fastdime.training.run import Trained, card, train
from fastdime.training.settings import TrainSettings
from fastdime.training.shapes import reshaped
from fastdime.training.steering import Steering, open_steered

Recipe = DenoiserRecipe | ClassifierRecipe
ANY = Choice()
SMALLEST = 8  # pixels a side of images for a classifier


class Shown(Protocol):
    """Progress as the command line shows it."""

    def __call__(self, done: float, of: int) -> None:
        """Tell how much is done."""

    def note(self, text: str) -> None:
        """Tell how it goes."""


Show = Callable[[str], AbstractContextManager[Shown]]  # of what: images, updates


@dataclass(frozen=True)
class Request:
    """What to train, on what, and where to.

    Attributes:
        data: table or folder of images.
        root: as for `read_table`; size, channels, convert: as for `io.read`.
        network: `widths`, `layers`, `patch`, `prediction`, `focus`, `emphasis` (a guide) of a denoiser;
            `architecture`, `width`, `steer` (a denoiser) of a classifier.
        augment: fields of Augment that differ from the recipe's, for a classifier.
        changes: fields of TrainSettings that differ from the recipe's.
        start: folder or file with weights to begin with.
        command: for the model card.
    """

    kind: Kind
    data: str
    out: Path
    choice: Choice = ANY
    recipe: str = "small"
    size: int | None = None
    channels: int | None = None
    convert: bool = False
    root: Path | None = None
    network: Mapping[str, Any] = field(default_factory=dict)
    augment: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    start: Path | None = None
    device: str = "auto"
    command: str = ""


def train_table(request: Request, show: Show) -> dict[str, Any] | None:
    """Train as asked and write the model card; returns what the card says.

    Returns:
        None in a process that only helps another.
    """
    recipe = recipe_for(request.kind, request.recipe, request.augment)
    group = None if request.choice.group == NONE else request.choice.group
    table = read_table(request.data, root=request.root, group=group)
    settings = settings_for(
        recipe, request.changes, len(table)
    )  # what is wrong is told before images are read
    chosen = choose(table, request.choice, settings.seed)
    settings = settings_for(recipe, request.changes, len(chosen.train))
    train_part = _read(request, recipe, chosen.train, show)
    valid_part = _read(request, recipe, chosen.valid, show, like=train_part)
    task = task_for(recipe, train_part, valid_part, request.network)
    with show("updates") as progress:
        trained = train(
            task,
            settings,
            request.out,
            progress,
            note=progress.note,
            start=request.start,
            device=request.device,
        )
    if not trained.leads:
        return None
    told = _told(request, chosen, trained, settings)
    write_card(request.out, told, recipe.note)
    return told


def recipe_for(kind: Kind, name: str, augment: Mapping[str, Any] | None = None) -> Recipe:
    """Look a recipe up.

    Args:
        augment: as in `Request`.
    """
    if name not in RECIPES:
        raise InputError(unknown("--recipe", name, RECIPES))
    if kind == "denoiser":
        return DENOISERS[name]
    recipe = GUIDES[name] if kind == "guide" else TASKS[name]
    given = {**vars(recipe.augment), **(augment or {})}
    for key in given:
        if key not in vars(recipe.augment):
            raise InputError(unknown("--augment", key, vars(recipe.augment)))
    return replace(recipe, augment=Augment(**given))


def settings_for(recipe: Recipe, changes: Mapping[str, Any], images: int) -> TrainSettings:
    """Return the settings of a recipe for so many images, with changes."""
    values: dict[str, Any] = {**recipe.settings, **changes}
    given = checked(TrainSettings, values, "settings of the training", InputError)
    epoch = math.ceil(images / (given.batch_size * processes()))
    if recipe.epochs is not None:
        values = {"steps": recipe.epochs * epoch, "validate_every": epoch, **values}
    steps = checked(TrainSettings, values, "settings of the training", InputError).steps
    if "warmup" not in changes:  # a short training has a short warm-up
        values["warmup"] = min(given.warmup, steps // 10)
    return TrainSettings(**values)


def task_for(
    recipe: Recipe, train_part: Pictures, valid_part: Pictures, network: Mapping[str, Any]
) -> Denoising | Classifying:
    """Put a recipe and images together.

    Args:
        network: as in `Request`.
    """
    given = {name: value for name, value in network.items() if value is not None}
    if isinstance(recipe, DenoiserRecipe):
        prediction = given.pop("prediction", recipe.prediction)
        if prediction not in get_args(Prediction):
            raise InputError(unknown("--prediction", prediction, get_args(Prediction)))
        focus = given.pop("focus", 1.0)
        guide = given.pop("emphasis", None)
        weight = None if guide is None else emphasis(open_guide(guide), train_part, recipe.flip)
        shape = reshaped(recipe.shape, given)
        return Denoising(train_part, valid_part, shape, recipe.flip, recipe.chain, prediction, focus, weight)
    _check_shape(train_part, recipe.augment)
    spec = _spec(given.get("architecture", recipe.architecture), train_part, given.get("width"))
    task = Classifying(
        train_part, valid_part, spec, recipe.augment, recipe.smoothing, recipe.balance, recipe.levels
    )
    if "steer" not in given:
        return task
    return Steering(**vars(task), steered=open_steered(given["steer"], train_part))


def _check_shape(pictures: Pictures, augment: Augment) -> None:
    """Refuse images in which nothing can be seen, and shifts that leave nothing of them."""
    side = min(pictures.levels.shape[2:])
    if side < SMALLEST:
        raise InputError(expected("images", f"{SMALLEST} pixels a side or more", side, "use a larger --size"))
    if augment.shift >= side:
        raise InputError(
            expected("--augment shift", f"fewer than the {side} pixels of a side", augment.shift)
        )


def _spec(name: str, pictures: Pictures, first: int | None) -> ClassifierSpec:
    channels, height, width = pictures.levels.shape[1:]
    arguments: dict[str, Any] = {"channels": channels}
    if name in ("encoder-unet", "placed-cnn"):
        if height != width:
            raise InputError(expected(name, "square images", f"{height} x {width}", "use --size"))
        arguments["image_size"] = height
    if first is not None:
        arguments["width"] = first
    architecture(name)
    size = height if height == width else None
    return ClassifierSpec(architecture=name, arguments=arguments, channels=channels, size=size).completed()


def _read(
    request: Request, recipe: Recipe, table: Table, show: Show, like: Pictures | None = None
) -> Pictures:
    with show("images") as progress:
        return read_pictures(
            table,
            label=request.choice.label,
            size=request.size or recipe.size,
            channels=request.channels,
            convert=request.convert,
            like=like,
            progress=progress,
        )


def _told(request: Request, chosen: Chosen, trained: Trained, settings: TrainSettings) -> dict[str, Any]:
    told = {
        "kind": request.kind,
        "recipe": request.recipe,
        "folder": str(trained.folder),
        "data": request.data,
        "images": len(chosen.train),
        "validation_images": len(chosen.valid),
        "left_out_without_label": chosen.blank,
        "left_out_without_split": chosen.unsplit,
        **card(trained, settings, request.command),
    }
    if request.start is not None:
        told["started_from"] = str(request.start)
    if request.kind == "guide" and request.choice.label is not None:
        classifier = load_classifier(trained.folder)
        found = phantom_coverage(classifier, chosen.valid, request.choice.label, classifier.size)
        told |= {"coverage": asdict(found)} if found is not None else {}
    return told
