"""Read a batch of a table: pictures, targets and regions; what cannot be used becomes an error record."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fastdime.data import io
from fastdime.data.table import Table
from fastdime.diffusion.denoiser import Denoiser
from fastdime.errors import DataError, InputError, expected
from fastdime.pipeline.options import RunOptions


@dataclass(frozen=True)
class Row:
    """One image, ready to explain; `target` None means flip, `region` None means everywhere."""

    image_id: str
    path: Path
    x: Tensor
    bits: int
    target: int | None
    region: Tensor | None


@dataclass(frozen=True)
class Failure:
    """One image that cannot be used, and why."""

    image_id: str
    path: Path
    error: str


@dataclass(frozen=True)
class Format:
    """What every image must look like."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class Inputs:
    """The images of a table, one batch at a time."""

    table: Table
    options: RunOptions
    folder: Path
    format: Format

    def batch(self, places: Sequence[int]) -> list[Row | Failure]:
        """Read the images at these places of the table."""
        return [self._row(place) for place in places]

    def _row(self, place: int) -> Row | Failure:
        image_id, path = self.table.ids[place], self.table.paths[place]
        try:
            picture = io.read(
                path, channels=self.format.channels, size=self.options.size, convert=self.options.convert
            )
            _check_size(path, picture.x, self.format)
            return Row(image_id, path, picture.x, picture.bits, self._target(place), self._region(place))
        except DataError as error:
            if self.options.strict:
                raise
            return Failure(image_id, path, str(error))

    def _target(self, place: int) -> int | None:
        kind, _, column = self.options.target.partition(":")
        if kind == "flip" and not column:
            return None
        if kind not in ("flip", "column"):
            return int(kind)
        value = self.table.column(column)[place]
        where = f"column {column!r} of image {self.table.ids[place]!r}"
        if math.isnan(value) or value != int(value):
            raise DataError(expected(where, "a class number", value, "fill it in or choose another column"))
        if kind == "flip" and value not in (0, 1):
            raise DataError(expected(where, "0 or 1, for a flip", value, "use column:NAME with a target"))
        return 1 - int(value) if kind == "flip" else int(value)

    def _region(self, place: int) -> Tensor | None:
        allowed = self._mask(self.options.allow, place)
        forbidden = self._mask(self.options.forbid, place)
        if forbidden is None:
            return allowed
        return ~forbidden if allowed is None else allowed & ~forbidden

    def _mask(self, source: str | None, place: int) -> Tensor | None:
        if source is None:
            return None
        path = Path(source)
        if source in self.table.groups:
            path = self.folder / self.table.groups[source][place]
        mask = io.read_mask(path, size=self.options.size)
        _check_size(path, mask, self.format)
        return mask


def open_inputs(table: Table, options: RunOptions, folder: Path, denoiser: Denoiser) -> Inputs:
    """Check what the options ask for, and settle what images must look like."""
    _check_target(table, options.target)
    for source in (options.allow, options.forbid):
        if source is not None and source not in table.groups and not Path(source).is_file():
            known = ", ".join(table.groups) or "none"
            raise InputError(expected("region", f"a mask image or a text column ({known})", repr(source)))
    return Inputs(table, options, folder, _settled_format(table, options, denoiser))


def _check_target(table: Table, target: str) -> None:
    kind, _, column = target.partition(":")
    if kind in ("flip", "column") and (column or kind == "column"):
        table.column(column)
    elif kind != "flip" and not (target.isdecimal() and target.isascii()):
        raise InputError(
            expected("target", "flip, flip:COLUMN, column:COLUMN or a class number", repr(target))
        )


def _settled_format(table: Table, options: RunOptions, denoiser: Denoiser) -> Format:
    """The denoiser says it, or the option, or else the first image that can be read."""
    size = denoiser.size or options.size
    if options.size and denoiser.size and options.size != denoiser.size:
        raise InputError(expected("size", f"{denoiser.size}, the size of the denoiser", options.size))
    if size and denoiser.channels:
        return Format(denoiser.channels, size, size)
    for path in table.paths:
        try:
            x = io.read(path, channels=denoiser.channels, size=options.size, convert=options.convert).x
        except DataError:
            continue
        return Format(x.shape[0], size or x.shape[1], size or x.shape[2])
    raise DataError(expected(str(table.paths[0].parent), "an image that can be read", "none in the table"))


def _check_size(path: Path, x: Tensor, wanted: Format) -> None:
    if tuple(x.shape[1:]) != (wanted.height, wanted.width):
        remedy = f"resize it, or use --size {wanted.height}" if wanted.height == wanted.width else "resize it"
        size = f"{wanted.height}x{wanted.width} pixels"
        raise DataError(expected(str(path), size, f"{x.shape[1]}x{x.shape[2]}", remedy))
