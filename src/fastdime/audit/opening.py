"""What an audit is given: its table, its folder and the models, checked before anything is made."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

from fastdime.audit.answers import open_answers
from fastdime.audit.models import Audited, Shape, open_audited
from fastdime.audit.request import AuditRequest
from fastdime.audit.schema import AUDIT_FILE, PICTURES_FILE
from fastdime.bundles import Bundle
from fastdime.data.splits import NONE, groups_of
from fastdime.data.table import Table, read_table
from fastdime.errors import DataError, InputError, expected
from fastdime.runs import file_stem

CSV = (".csv", ".tsv", ".parquet")


def check_out(out: Path, request: AuditRequest) -> None:
    """Refuse a folder that holds something else."""
    if os.path.lexists(out) and not out.is_dir():
        raise InputError(expected(str(out), "a folder, for --out", "a file", "choose another --out"))
    there = sorted(os.listdir(out)) if out.is_dir() else []
    own = {AUDIT_FILE, PICTURES_FILE, *map(file_stem, request.shortcuts)}
    if there and own.isdisjoint(there):
        got = f"one with {there[0]!r} in it"
        raise InputError(expected(str(out), "the folder of an audit or an empty one", got, "choose another"))


def open_models(
    models: Mapping[str, object], bundles: Mapping[str, Bundle | None]
) -> dict[tuple[str, str], Audited | Path]:
    """Open each model once for each size of image, and see that tables of answers are there."""
    if not models and None in bundles.values():
        raise InputError(
            expected("audit", "a bundle to make pictures with, or a table of answers", "neither")
        )
    found: dict[tuple[str, str], Audited | Path] = {}
    opened: dict[tuple[str, Shape], Audited] = {}
    for name, source in models.items():
        for column, bundle in bundles.items():
            if is_table(source):
                found[name, column] = open_answers(os.fspath(source)).path
            elif bundle is None:
                wanted = "a table of answers, or a bundle to make the pictures that the model is asked about"
                raise InputError(expected(f"model {name}", wanted, "neither", "give --bundle"))
            else:
                key = name, (bundle.channels, bundle.size, bundle.size)
                opened[key] = opened.get(key) or open_audited(source, name, shape=key[1])
                found[name, column] = opened[key]
    return found


def is_table(source: object) -> TypeGuard[str | Path]:
    """Tell a table of answers from a model."""
    return isinstance(source, str | Path) and Path(source).suffix.lower() in CSV


def open_data(request: AuditRequest) -> Table:
    """Read the table, and check that its columns are there before anything is made."""
    table = read_table(request.data, root=request.root, group=named(request.group))
    table = table.where(request.where) if request.where else table
    for column in (*request.by, *([request.task] if request.task else [])):
        table.text(column)
    groups_of(table, request.group)
    if request.task:
        table.binary(request.task)
    return table.head(request.limit) if request.limit else table


def named(group: str | None) -> str | None:
    """Return the column of patients, if one is named."""
    return None if group == NONE else group


def labelled(table: Table, column: str) -> tuple[Table, list[str]]:
    """Return the rows whose label of the shortcut is known, and what is to be said about the others."""
    values = table.binary(column)
    kept = [row for row, value in enumerate(values) if not math.isnan(value)]
    if not any(values[row] == 1 for row in kept):
        got = f"none in {len(kept)} labelled images"
        raise DataError(expected(f"column {column!r}", "images that show the shortcut (1)", got, "add some"))
    warnings = []
    if blank := len(table) - len(kept):
        warnings.append(f"{column}: {blank} of {len(table)} images have no label and are left out")
    if all(values[row] == 1 for row in kept):
        warnings.append(f"{column}: all images show the shortcut, so it is only removed, never added")
    return table.take(kept), warnings
