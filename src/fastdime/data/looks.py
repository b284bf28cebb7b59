"""Open images of a table, to tell what they are like, which cannot be read, and which are the same."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastdime.data import io
from fastdime.data.table import Table
from fastdime.errors import DataError

Progress = Callable[[int, int], None]


@dataclass
class Looks:
    """What was seen.

    Attributes:
        opened: number of images.
        kinds: how many have each (height, width, channels, bits).
        unreadable: id, place in the table and error of each image that cannot be read.
        same: ids of images by what they show.
    """

    opened: int = 0
    kinds: Counter[tuple[int, ...]] = field(default_factory=Counter)
    unreadable: list[dict[str, str]] = field(default_factory=list)
    same: dict[bytes, list[str]] = field(default_factory=dict)

    @property
    def duplicates(self) -> list[list[str]]:
        """Ids of images whose pixels are equal."""
        return [ids for ids in self.same.values() if len(ids) > 1]

    def plain(self) -> dict[str, Any]:
        """Return what was seen, but for duplicates, as plain values."""
        names = ("height", "width", "channels", "bits", "images")
        kinds = [dict(zip(names, (*kind, n), strict=True)) for kind, n in self.kinds.most_common()]
        return {"opened": self.opened, "kinds": kinds, "unreadable": self.unreadable}


def look(table: Table, rows: Sequence[int], progress: Progress | None = None) -> Looks:
    """Open the images of these rows, one at a time."""
    seen = Looks()
    for row in rows:
        _look_at(seen, table, row)
        seen.opened += 1
        if progress is not None:
            progress(seen.opened, len(rows))
    return seen


def _look_at(seen: Looks, table: Table, row: int) -> None:
    try:
        picture = io.read(table.paths[row])
    except DataError as error:
        place = {"id": table.ids[row], "place": table.place(row).strip()}
        seen.unreadable.append({**place, "error": str(error)})
        return
    kind = (*picture.x.shape[1:], picture.x.shape[0], picture.bits)
    seen.kinds[kind] += 1
    content = repr(kind).encode() + picture.x.numpy().tobytes()
    seen.same.setdefault(hashlib.blake2b(content, digest_size=16).digest(), []).append(table.ids[row])
