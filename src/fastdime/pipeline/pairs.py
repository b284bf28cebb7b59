"""Pictures and their counterfactuals, of a run or of any two folders, some at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastdime.data import io
from fastdime.data.table import read_table
from fastdime.errors import DataError, InputError, expected
from fastdime.pipeline.summary import read_explained
from fastdime.runs import Record, image_path, mask_path
from fastdime.types import Images, Mask

MASK_SUFFIX = ".mask"  # of what a run folder keeps beside its counterfactuals


@dataclass(frozen=True)
class Place:
    """Where a picture, its counterfactual and the mask of allowed changes lie."""

    image_id: str
    original: Path
    counterfactual: Path
    mask: Path | None = None


@dataclass(frozen=True)
class Batch:
    """Some pairs of one shape; `rows` are their places among all pairs."""

    rows: list[int]
    x: Images
    x_cf: Images
    mask: Mask | None


@dataclass(frozen=True)
class Pairs:
    """Everything that can be scored together.

    Attributes:
        source: what the pairs are of, for sentences.
        size, convert: how originals are read: as the run read them.
        records: what the run says of each pair, in the same order; empty for two folders.
        config: the settings of the run.
        failed: reasons for pairs that cannot be used.
        alone: originals that have no counterfactual.
    """

    source: str
    places: tuple[Place, ...]
    size: int | None = None
    convert: bool = False
    records: tuple[Record, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    alone: tuple[Path, ...] = ()

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.places)

    @property
    def ids(self) -> tuple[str, ...]:
        """The name of each pair."""
        return tuple(place.image_id for place in self.places)

    def batches(self, size: int, failed: list[str]) -> Iterator[Batch]:
        """Yield all pairs, those of one shape together; what cannot be read is told in `failed`."""
        for first in range(0, len(self), size):
            shapes: dict[tuple[object, ...], dict[int, tuple[Tensor, Tensor, Tensor | None]]] = {}
            for row in range(first, min(first + size, len(self))):
                try:
                    x, x_cf, mask = read_pair(self.places[row], self.size, self.convert)
                except DataError as error:
                    failed.append(str(error))
                else:
                    shapes.setdefault((*x.shape, mask is None), {})[row] = (x, x_cf, mask)
            yield from map(_stacked, shapes.values())

    def lone(self, size: int, failed: list[str]) -> Iterator[Images]:
        """Yield the originals that have no counterfactual, those of one shape together."""
        for first in range(0, len(self.alone), size):
            shapes: dict[tuple[int, ...], list[Tensor]] = {}
            for path in self.alone[first : first + size]:
                try:
                    x = io.read(path, size=self.size).x
                except DataError as error:
                    failed.append(str(error))
                else:
                    shapes.setdefault(tuple(x.shape), []).append(x)
            yield from map(torch.stack, shapes.values())


def _stacked(alike: Mapping[int, tuple[Tensor, Tensor, Tensor | None]]) -> Batch:
    x, x_cf, masks = zip(*alike.values(), strict=True)
    shown = [mask for mask in masks if mask is not None]
    return Batch(list(alike), torch.stack(x), torch.stack(x_cf), torch.stack(shown) if shown else None)


def read_pair(
    place: Place, size: int | None = None, convert: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Read picture, counterfactual and mask of one pair.

    Raises:
        DataError: one of them cannot be read, or they do not fit together.
    """
    after = io.read(place.counterfactual).x
    channels = len(after) if convert else None
    before = io.read(place.original, channels=channels, size=size, convert=convert).x
    if len(before) != len(after):  # colour whose three channels are equal is gray, on either side
        after = io.read(place.counterfactual, channels=1).x
        before = io.read(place.original, channels=1, size=size).x
    mask = None if place.mask is None else io.read_mask(place.mask)
    if before.shape != after.shape:
        sizes = ["x".join(map(str, x.shape[1:])) for x in (after, before)]
        remedy = f"it is not the original of {place.counterfactual}"
        raise DataError(expected(str(place.original), f"{sizes[0]} pixels", sizes[1], remedy))
    return before, after, mask


def pairs_of_run(run: str | Path) -> Pairs:
    """List the pairs of a run of `explain`; images that the run could not use are left out and counted."""
    config, records = read_explained(run)
    good = tuple(record for record in records if "error" not in record)
    if not good:
        raise DataError(expected(str(run), "at least one finished image", "none"))
    size = config.get("size")
    return Pairs(
        source=str(run),
        places=tuple(place_in_run(run, record) for record in good),
        size=size if isinstance(size, int) else None,
        convert=bool(config.get("convert")),
        records=good,
        config=config,
        failed=tuple(str(record["error"]) for record in records if "error" in record),
    )


def place_in_run(run: str | Path, record: Record) -> Place:
    """Return where the files of one image of a run lie."""
    name = record["id"]
    return Place(name, Path(record["path"]), image_path(run, name), mask_path(run, name))


def pairs_of_folders(
    original: str | Path, counterfactual: str | Path, *, size: int | None = None, convert: bool = False
) -> Pairs:
    """Match the pictures of two folders (or tables) by their ids; originals without a partner are left out.

    Raises:
        DataError: a counterfactual has no original.
    """
    before, after = read_table(original), read_table(counterfactual)
    known = dict(zip(before.ids, before.paths, strict=True))
    made = dict(zip(after.ids, after.paths, strict=True))
    masks = {name.removesuffix(MASK_SUFFIX): path for name, path in made.items() if _is_mask(name, made)}
    made = {name: path for name, path in made.items() if not _is_mask(name, made)}
    strangers = [name for name in made if name not in known]
    if strangers:
        got = f"{len(strangers)} without one, such as {strangers[0]!r}"
        remedy = f"originals are named {before.ids[0]!r}; give partners the same name"
        where = f"counterfactuals in {counterfactual}"
        raise DataError(expected(where, f"an original of the same name in {original}", got, remedy))
    places = tuple(Place(name, known[name], path, masks.get(name)) for name, path in made.items())
    alone = tuple(path for name, path in known.items() if name not in made)
    return Pairs(f"{original} and {counterfactual}", places, size, convert, alone=alone)


def _is_mask(name: str, made: Mapping[str, Path]) -> bool:
    return name.endswith(MASK_SUFFIX) and name.removesuffix(MASK_SUFFIX) in made


def open_pairs(
    run: str | Path | None,
    original: str | Path | None,
    counterfactual: str | Path | None,
    *,
    size: int | None = None,
    convert: bool = False,
) -> Pairs:
    """Open what a command names: a run, or originals and counterfactuals."""
    if run is not None and original is None and counterfactual is None:
        if size is not None or convert:
            got = "a run, which says how its images were read"
            raise InputError(expected("--size, --convert-channels", "two folders", got, "leave them out"))
        return pairs_of_run(run)
    if run is None and original is not None and counterfactual is not None:
        return pairs_of_folders(original, counterfactual, size=size, convert=convert)
    wanted = "a run folder, or --original and --counterfactual"
    raise InputError(expected("pairs to score", wanted, "neither" if run is None else "both"))
