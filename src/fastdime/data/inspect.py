"""What is in a table: counts, missing labels, groups in several splits, and what the images are like."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastdime.data.choice import predicted_column
from fastdime.data.looks import Progress, look
from fastdime.data.table import PATIENT, SPLIT, Table

FEW = 20  # images that are opened when not all are
EXAMPLES = 5


@dataclass(frozen=True)
class Roles:
    """Columns to count by; None: `task`, `shortcut` and `patient`, where the table has them."""

    task: str | None = None
    shortcut: str | None = None
    group: str | None = None


DEFAULT_ROLES = Roles()


def inspect(
    table: Table, roles: Roles = DEFAULT_ROLES, *, check: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Describe a table with plain values, ready for JSON.

    Args:
        check: open every image, and look for images that are there twice; otherwise a few are opened.

    Returns:
        images, labels, texts, counts, missing, predicted, groups, files, duplicates and warnings.
    """
    columns = {"task": _settled(table, "task", roles.task)}
    columns["shortcut"] = _settled(table, "shortcut", roles.shortcut)
    labels = {role: name for role, name in columns.items() if name is not None}
    count = len(table) if check else min(FEW, len(table))
    looks = look(table, [place * len(table) // count for place in range(count)], progress)
    result: dict[str, Any] = {
        "images": len(table),
        "labels": list(table.labels),
        "texts": list(table.groups),
        "counts": _counts(table, labels),
        "missing": {role: sum(map(math.isnan, table.binary(name))) for role, name in labels.items()},
        "predicted": {role: _predicted(table, name) for role, name in labels.items()},
        "groups": _groups(table, _settled(table, PATIENT, roles.group)),
        "files": looks.plain(),
        "duplicates": _duplicates(table, looks.duplicates) if check else None,
    }
    return {**result, "warnings": list(_warnings(result))}


def _settled(table: Table, role: str, name: str | None) -> str | None:
    """Return the column that plays a role: the one that was named, or the one that has its name."""
    if name is None:
        return role if role in table.labels or role in table.groups else None
    table.text(name)  # one that is not there is refused
    return name


def _counts(table: Table, labels: dict[str, str]) -> list[dict[str, Any]]:
    """Count the images by split and labels; what is missing is None, and comes last."""
    columns: dict[str, list[Any]] = {}
    if SPLIT in table.groups:
        columns[SPLIT] = [text or None for text in table.groups[SPLIT]]
    for role, name in labels.items():
        columns[role] = [None if math.isnan(value) else int(value) for value in table.binary(name)]
    cells = Counter(zip(*columns.values(), strict=True)) if columns else {}
    ordered = sorted(cells, key=lambda cell: [(part is None, str(part)) for part in cell])
    return [{**dict(zip(columns, cell, strict=True)), "images": cells[cell]} for cell in ordered]


def _predicted(table: Table, name: str) -> int:
    return sum(mark == 1 for mark in table.labels.get(predicted_column(name), ()))


def _groups(table: Table, name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    splits: dict[str, set[str]] = {}
    for group, split in zip(table.grouping(name), _splits(table), strict=True):
        splits.setdefault(group, set()).add(split)
    parted = [group for group, found in splits.items() if len(found) > 1]
    return {
        "column": name,
        "groups": len(splits),
        "blank": sum(not text for text in table.text(name)),
        "in_several_splits": len(parted),
        "examples": parted[:EXAMPLES],
    }


def _splits(table: Table) -> tuple[str, ...]:
    return table.groups.get(SPLIT, ("",) * len(table))


def _duplicates(table: Table, same: list[list[str]]) -> dict[str, Any]:
    split_of = dict(zip(table.ids, _splits(table), strict=True))
    parted = [ids for ids in same if len({split_of[name] for name in ids}) > 1]
    return {"sets": same, "in_several_splits": parted}


def _warnings(result: dict[str, Any]) -> Iterator[str]:
    groups, files, duplicates = result["groups"], result["files"], result["duplicates"]
    if groups and groups["in_several_splits"]:
        count, first = groups["in_several_splits"], groups["examples"][0]
        yield f"groups of {groups['column']!r} in several splits: {count}, such as {first!r}"
    if files["unreadable"]:
        yield f"images that cannot be read: {len(files['unreadable'])} of {files['opened']} opened"
    if len(files["kinds"]) > 1:
        yield f"sizes, channels and depths of images: {len(files['kinds'])} different"
    if duplicates and duplicates["sets"]:
        first = " and ".join(duplicates["sets"][0][:2])
        yield f"images that are there more than once: {len(duplicates['sets'])}, such as {first}"
    if duplicates and duplicates["in_several_splits"]:
        yield f"of these in several splits: {len(duplicates['in_several_splits'])}"


def as_text(result: dict[str, Any]) -> str:
    """Write what `inspect` returns for people."""
    lines = [f"images   {result['images']}"]
    names = [
        name for name in ("split", "task", "shortcut") if result["counts"] and name in result["counts"][0]
    ]
    if names:
        lines += ["", "".join(f"{name:<10}" for name in (*names, "images"))]
    for row in result["counts"]:
        cells = ["-" if row[name] is None else row[name] for name in (*names, "images")]
        lines.append("".join(f"{cell!s:<10}" for cell in cells).rstrip())
    lines += ["", *_facts(result)]
    return "\n".join(line.rstrip() for line in lines)


def _facts(result: dict[str, Any]) -> Iterator[str]:
    for role in result["missing"]:
        yield f"{role}: {result['missing'][role]} missing, {result['predicted'][role]} predicted"
    if groups := result["groups"]:
        yield f"groups of {groups['column']}: {groups['groups']}"
    for kind in result["files"]["kinds"]:
        shape = "{height}x{width}, {channels} channel(s), {bits} bits: {images}".format_map(kind)
        yield f"{shape} of {result['files']['opened']} opened"
    for bad in result["files"]["unreadable"][:EXAMPLES]:
        yield f"{bad['place']}: {bad['error']}" if bad["place"] else bad["error"]
    yield from (f"warning: {sentence}" for sentence in result["warnings"])
