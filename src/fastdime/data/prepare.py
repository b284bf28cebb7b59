"""Images of one form, made once: reading large files anew for every run would take most of its time.

OUT/prepared.json   what was asked for; a folder is continued only with the same
OUT/images/ID.png   the images
OUT/table.csv       the table of them, with all columns of the first one; written last
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fastdime.configs import read_json
from fastdime.data import io
from fastdime.data.forms import Form
from fastdime.data.table import Table, write_table
from fastdime.errors import DataError, InputError, expected
from fastdime.files import not_writable, write_atomically
from fastdime.runs import file_stem

SETTINGS, IMAGES = "prepared.json", "images"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Prepared:
    """The new table, and what is wrong with the images that are not in it."""

    table: Path
    errors: tuple[str, ...]


def prepare(table: Table, out: str | Path, form: Form, progress: Progress | None = None) -> Prepared:
    """Write the images of a table in one form; interrupted and called again, it goes on.

    Raises:
        InputError: the folder holds something else.
        DataError: no image can be read, or one is gray and another colour and they are not to be converted.
    """
    folder = Path(out)
    _settle(folder, table, form)
    form = form.model_copy(update={"channels": form.channels or _first_channels(table)})
    paths = [folder / IMAGES / f"{file_stem(name)}.png" for name in table.ids]
    errors: dict[int, str] = {}
    for row, path in enumerate(paths):
        try:
            _write(table.paths[row], path, form)
        except DataError as error:
            if _is_readable(table.paths[row], form.model_copy(update={"channels": None})):
                raise  # gray among colour: to leave out half of a set is not what anyone wants
            errors[row] = f"{table.place(row)}{error}"
        if progress is not None:
            progress(row + 1, len(table))
    kept = [row for row in range(len(table)) if row not in errors]
    if not kept:
        raise DataError(expected("table", "an image that can be read", f"none; the first: {errors[0]}"))
    ready = replace(table, paths=tuple(paths)).take(kept)
    return Prepared(write_table(ready, folder / "table.csv", folder), tuple(errors.values()))


def _write(source: Path, path: Path, form: Form) -> None:
    if not path.exists():
        picture = io.read(source, **form.model_dump())
        io.write_image(path, picture.x, picture.bits)


def _first_channels(table: Table) -> int | None:
    """Return the channels of the first image that can be read."""
    for path in table.paths:
        try:
            return io.read(path).x.shape[0]
        except DataError:
            continue
    return None


def _is_readable(path: Path, form: Form) -> bool:
    try:
        io.read(path, **form.model_dump())
    except DataError:
        return False
    return True


def _settle(folder: Path, table: Table, form: Form) -> None:
    """Make the folder, or check that it was begun with the same images and form."""
    names = "\n".join(
        f"{name!r}\t{os.path.abspath(path)!r}" for name, path in zip(table.ids, table.paths, strict=True)
    )
    content = {"form": form.model_dump(), "images": hashlib.sha256(names.encode()).hexdigest()[:16]}
    path = folder / SETTINGS
    if path.is_file():
        if read_json(path) != content:
            got = "others, or another form"
            raise InputError(
                expected(str(folder), "the images it was begun with", got, "choose another --out")
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(expected(str(folder), "a new folder", "one that is in use", "choose another --out"))
    try:
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from None
    write_atomically(path, json.dumps(content).encode())
