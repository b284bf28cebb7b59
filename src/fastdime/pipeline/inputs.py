"""Read a batch of a table: pictures, targets and regions; what cannot be used becomes an error record."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import check_chain
from fastdime.counterfactuals.problem import left_as_found
from fastdime.data import io
from fastdime.data.table import Table
from fastdime.diffusion.denoiser import Denoiser
from fastdime.errors import DataError, InputError, expected, unknown
from fastdime.pipeline.options import RunOptions, device_of
from fastdime.scores import class_count


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
    """The images of a table, one batch at a time.

    Attributes:
        folder: what paths in a column of masks are relative to.
        classes: how many the classifier tells apart.
        allow, forbid: one mask for all images, or the column that names one for each.
    """

    table: Table
    options: RunOptions
    folder: Path
    format: Format
    classes: int
    allow: Tensor | str | None = None
    forbid: Tensor | str | None = None

    def batch(self, places: Sequence[int]) -> list[Row | Failure]:
        """Read the images at these places of the table."""
        return [self._row(place) for place in places]

    def _row(self, place: int) -> Row | Failure:
        image_id, path = self.table.ids[place], self.table.paths[place]
        try:
            picture = _read(path, self.options, self.format.channels)
            _check_size(path, picture.x, self.format)
            return Row(image_id, path, picture.x, picture.bits, self._target(place), self._region(place))
        except DataError as error:
            if self.options.strict:
                raise
            return Failure(image_id, path, str(error))

    def _target(self, place: int) -> int | None:
        kind, _, column = self.options.target.partition(":")
        if not column:
            return None if kind == "flip" else int(kind)
        value = self.table.column(column)[place]
        if not (float(value).is_integer() and 0 <= value < self.classes):
            got = "an empty cell" if math.isnan(value) else f"{value:g}"
            where = f"column {column!r} of image {self.table.ids[place]!r}"
            raise DataError(expected(where, f"a class from 0 to {self.classes - 1}", got, "mend the table"))
        return 1 - int(value) if kind == "flip" else int(value)

    def _region(self, place: int) -> Tensor | None:
        allowed, forbidden = self._mask(self.allow, place), self._mask(self.forbid, place)
        if forbidden is None:
            return allowed
        return ~forbidden if allowed is None else allowed & ~forbidden

    def _mask(self, source: Tensor | str | None, place: int) -> Tensor | None:
        if not isinstance(source, str):
            return source
        cell = self.table.groups[source][place]
        if not cell:
            where = f"column {source!r} of image {self.table.ids[place]!r}"
            raise DataError(expected(where, "a mask image", "an empty cell", "mend the table"))
        return _read_mask(self.folder / cell, self.options, self.format)


def open_inputs(table: Table, options: RunOptions, folder: Path, explainer: Explainer) -> Inputs:
    """Check what the options ask for, settle what images must look like, and try the models on one."""
    _check_target(table, options.target)
    check_chain(explainer.denoiser, explainer.resolved)
    wanted, first = _settled_format(table, options, explainer.denoiser)
    # Without an image that fits, every row becomes an error record before its class is looked at.
    classes = _try_models(explainer, first) if first is not None else 2
    _check_classes(options.target, classes)
    masks = [
        _mask_source(name, source, table, options, wanted)
        for name, source in (("allow", options.allow), ("forbid", options.forbid))
    ]
    return Inputs(table, options, folder, wanted, classes, *masks)


def _check_target(table: Table, target: str) -> None:
    kind, colon, column = target.partition(":")
    if kind in ("flip", "column") and (colon or kind == "column"):
        table.column(column)
    elif kind != "flip" and not (target.isdecimal() and target.isascii()):
        raise InputError(
            unknown("target", target, ["flip", "flip:COLUMN", "column:COLUMN", "a class number"])
        )


def _check_classes(target: str, classes: int) -> None:
    if target.startswith("flip:") and classes != 2:
        raise InputError(expected("target flip:COLUMN", "two classes", classes, "use column:COLUMN"))
    if target.isdecimal() and int(target) >= classes:
        raise InputError(expected("target", f"a class from 0 to {classes - 1}", target))


def _mask_source(
    name: str, source: str | None, table: Table, options: RunOptions, wanted: Format
) -> Tensor | str | None:
    if source is None or source in table.groups:
        return source
    if os.path.isfile(source):
        return _read_mask(Path(source), options, wanted)
    if table.groups:
        raise InputError(unknown(f"{name}: no such mask image; text column", source, table.groups))
    raise InputError(expected(name, "a mask image, or a text column of the table", repr(source)))


def _settled_format(table: Table, options: RunOptions, denoiser: Denoiser) -> tuple[Format, Tensor | None]:
    """The denoiser says it, or the option, or else the first image that can be read; returns that too."""
    size = denoiser.size or options.size
    if options.size and denoiser.size and options.size != denoiser.size:
        raise InputError(expected("size", f"{denoiser.size}, the size of the denoiser", options.size))
    for path in table.paths:
        try:
            x = _read(path, options, denoiser.channels).x
            wanted = Format(x.shape[0], size or x.shape[1], size or x.shape[2])
            _check_size(path, x, wanted)
        except DataError:
            continue
        return wanted, x
    return Format(denoiser.channels or 1, size or 1, size or 1), None


def _try_models(explainer: Explainer, x: Tensor) -> int:
    """Show the models one image, so that what does not fit is told before a run begins; count the classes."""
    images = x[None].to(device_of(explainer))
    start = torch.zeros(1, dtype=torch.int64, device=images.device)
    with left_as_found(explainer.denoiser.network, explainer.classifier), torch.no_grad():
        classes = class_count(explainer.classifier.logits(images, start))
        try:
            explainer.denoiser.output(images, 0)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            wanted = f"a network that takes images of shape {tuple(images.shape)}"
            reason = " ".join(str(error).split())
            raise InputError(expected("denoiser", wanted, f"{type(error).__name__}: {reason}")) from error
    return classes


def _read(path: Path, options: RunOptions, channels: int | None) -> io.Picture:
    return io.read(path, channels=channels, size=options.size, convert=options.convert)


def _read_mask(path: Path, options: RunOptions, wanted: Format) -> Tensor:
    mask = io.read_mask(path, size=options.size)
    _check_size(path, mask, wanted)
    return mask


def _check_size(path: Path, x: Tensor, wanted: Format) -> None:
    if tuple(x.shape[1:]) != (wanted.height, wanted.width):
        remedy = f"resize it, or use --size {wanted.height}" if wanted.height == wanted.width else "resize it"
        size = f"{wanted.height}x{wanted.width} pixels"
        raise DataError(expected(str(path), size, f"{x.shape[1]}x{x.shape[2]}", remedy))
