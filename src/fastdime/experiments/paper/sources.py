"""Which images an experiment is done on: phantoms, or data sets that a user has."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fastdime.bundles import Bundle, load_info, shipped
from fastdime.data import io
from fastdime.data.phantoms.phantom import STUDIES
from fastdime.data.table import SPLIT, Table, read_table
from fastdime.errors import InputError, expected, listed, unknown
from fastdime.experiments.paper.experiment import DATA_SETS, Experiment, Scale, Source
from fastdime.experiments.truth import Direction

TEST = "test"


@dataclass(frozen=True)
class Given:
    """What a user says about images.

    Attributes:
        phantoms: names of phantoms.
        tables, bundles, tasks, shortcuts: by the name of a data set (the second also of a phantom).
    """

    phantoms: tuple[str, ...] = ()
    tables: Mapping[str, str] = field(default_factory=dict)
    bundles: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    shortcuts: Mapping[str, str] = field(default_factory=dict)


def parse_named(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE, as often as given.

    >>> parse_named("--data", ["isic=isic/table.csv"])
    {'isic': 'isic/table.csv'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value or name in found:
            got = f"{name!r} twice" if name in found else repr(text)
            raise InputError(expected(option, "NAME=VALUE, each name once", got))
        found[name] = value
    return found


def sources_of(experiment: Experiment, scale: Scale, given: Given) -> tuple[Source, ...]:
    """Return the sources that a user names; without any, the phantoms of the experiment at the small scale.

    Raises:
        FastdimeError: a name is not known, or something belongs to none; nothing is made before.
    """
    found = (*_phantoms(given), *_tables(given))
    known = [source.name for source in found]
    if not found and (scale == "small" or not experiment.needs_images):
        known = shipped()  # of all experiments, so that one set of options serves each
        names = experiment.phantoms or tuple(known)
        found = tuple(_phantoms(Given(phantoms=names, bundles=given.bundles)))
    _check_used(given, known)
    for source in found:  # what is not there is refused now, not after an hour
        _check_fit(source)
        if experiment.needs_images and source.table is not None:
            read_images(source, source.table)
    return found


def _phantoms(given: Given) -> Iterator[Source]:
    for name in dict.fromkeys(given.phantoms):
        if name not in STUDIES:
            raise InputError(unknown("--phantom", name, STUDIES))
        if name not in given.bundles and name not in shipped():
            wanted = f"one whose bundle comes with fastdime ({', '.join(shipped())})"
            remedy = f"give a bundle for it: --bundle {name}=FOLDER"
            raise InputError(expected(f"--phantom {name}", wanted, "one without", remedy))
        yield Source(name, None, given.bundles.get(name, name))


def _tables(given: Given) -> Iterator[Source]:
    for name, table in given.tables.items():
        if name not in DATA_SETS:
            raise InputError(unknown("--data", name, DATA_SETS))
        if name not in given.bundles:
            wanted = f"{name}=FOLDER, with denoiser and guide for --data {name}"
            raise InputError(expected("--bundle", wanted, "none"))
        if not Path(table).is_file():
            raise InputError(expected(f"--data {name}", "a table", f"no file {table}", "check the path"))
        columns = (given.tasks.get(name, "task"), given.shortcuts.get(name, "shortcut"))
        yield Source(name, Path(table), given.bundles[name], *columns)


def _check_fit(source: Source) -> None:
    """Refuse a bundle for other images than those of a phantom."""
    info = load_info(source.bundle)
    if source.table is None and info.channels != (wanted := STUDIES[source.name].channels):
        what = f"--bundle {source.name}={source.bundle}"
        raise InputError(expected(what, f"one for images of {wanted} channels", info.channels))


def _check_used(given: Given, names: list[str]) -> None:
    """Refuse what belongs to no source."""
    options = {"--bundle": given.bundles, "--task": given.tasks, "--shortcut": given.shortcuts}
    for option, values in options.items():
        for name in values:
            if option != "--bundle" and name not in given.tables:
                raise InputError(expected(f"{option} {name}", f"a --data {name}", "none"))
            if name not in names:
                raise InputError(
                    expected(f"{option} {name}", f"--data {name} or --phantom {name}", "neither")
                )


def read_images(source: Source, table: Path) -> Table:
    """Read the table of a source, and of it the split `test` if there is one."""
    images = read_table(table)
    check_column(images, source, "shortcut")
    return images.where(f"{SPLIT}={TEST}") if TEST in images.groups.get(SPLIT, ()) else images


def check_column(table: Table, source: Source, option: Literal["task", "shortcut"]) -> None:
    """Refuse the table of a source if it lacks a column that an option names, or has other labels in it."""
    column, names = getattr(source, option), [*table.labels, *table.groups]
    if column not in names:
        what, wanted = f"--data {source.name}={source.table}", f"a column {column!r}"
        remedy = f"name the column of the {option}: --{option} {source.name}=COLUMN"
        raise InputError(expected(what, wanted, listed(column, names) or "none", remedy))
    table.binary(column)


def first_rows(source: Source, table: Path, direction: Direction, n: int) -> Table:
    """Return the first rows with the shortcut, to remove it, or without, to add it; there may be fewer."""
    images, shown = read_images(source, table), float(direction == "remove")
    rows = [row for row, label in enumerate(images.binary(source.shortcut)) if label == shown]
    return images.take(rows[:n])


def read_pixels(table: Table, bundle: Bundle) -> Tensor:
    """Read the images of a table, in the form that a bundle wants."""
    form: dict[str, Any] = {"channels": bundle.channels, "size": bundle.size, "convert": True}
    return torch.stack([io.read(path, **form).x for path in table.paths])
