"""Images in memory as integers, a few bytes a pixel, with their labels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastdime.data import io
from fastdime.data.table import Table
from fastdime.errors import DataError, InputError, expected
from fastdime.pixels import from_integers, to_integers
from fastdime.weights import weights_hash

LARGEST = 8 * 2**30  # bytes of images that are kept in memory


@dataclass(frozen=True)
class Form:
    """Shape (c, h, w) and depth of an image."""

    shape: tuple[int, ...]
    bits: int

    def __str__(self) -> str:
        """Say it in a sentence."""
        return f"{self.shape} with {self.bits} bits"


@dataclass(frozen=True)
class Pictures:
    """Images (n, c, h, w) as 8- or 16-bit integers, and one label an image (NaN: not known)."""

    levels: Tensor
    bits: int
    labels: Tensor

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.levels)

    @property
    def form(self) -> Form:
        """What all images have in common."""
        return Form(tuple(self.levels.shape[1:]), self.bits)

    def x(self, rows: Tensor) -> Tensor:
        """Return images in [-1, 1]."""
        return from_integers(self.levels[rows].to(torch.int32), self.bits)

    def only(self, rows: Tensor) -> "Pictures":
        """Return some of the images."""
        return Pictures(self.levels[rows], self.bits, self.labels[rows])


def read_pictures(
    table: Table,
    *,
    label: str | None = None,
    size: int | None = None,
    channels: int | None = None,
    convert: bool = False,
    like: Pictures | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Pictures:
    """Read all images of a table; they must have one shape and depth.

    Args:
        size, channels, convert: as for `io.read`.
        like: images that these must be alike in shape and depth; without any the first image decides.

    Raises:
        DataError: an image cannot be used; one sentence that names the table, the row and the file.
    """
    form = _form(_read(table, 0, size, channels, convert)) if like is None else like.form
    levels = _room(len(table), form)
    for row in range(len(table)):
        picture = _read(table, row, size, form.shape[0], convert)
        if _form(picture) != form:
            raise _other_form(table, row, form, _form(picture))
        levels[row] = to_integers(picture.x, picture.bits).to(levels.dtype)
        if progress is not None:
            progress(row + 1, len(table))
    values = table.column(label) if label is not None else [float("nan")] * len(table)
    return Pictures(levels, form.bits, torch.tensor(values))


def _read(table: Table, row: int, size: int | None, channels: int | None, convert: bool) -> io.Picture:
    try:
        return io.read(table.paths[row], size=size, channels=channels, convert=convert)
    except DataError as error:
        raise DataError(f"{table.place(row)}{error}") from error


def _form(picture: io.Picture) -> Form:
    return Form(tuple(picture.x.shape), picture.bits)


def _room(images: int, form: Form) -> Tensor:
    # There are too few operations on 16-bit unsigned integers in older versions of torch.
    dtype = torch.uint8 if form.bits == 8 else torch.int32
    needed = images * math.prod(form.shape) * dtype.itemsize
    if needed > LARGEST:
        got = f"{needed / 2**30:.1f} GiB"
        raise InputError(
            expected("images", f"at most {LARGEST >> 30} GiB in memory", got, "use a smaller --size")
        )
    return torch.empty((images, *form.shape), dtype=dtype)


def _other_form(table: Table, row: int, form: Form, found: Form) -> DataError:
    sizes = found.shape != form.shape
    remedy = "give all one size with --size" if sizes else "give all files the same depth"
    wanted = f"{form}, as the first image"
    return DataError(expected(f"{table.place(row)}{table.paths[row]}", wanted, found, remedy))


def data_hash(train: Pictures, valid: Pictures) -> str:
    """Return a short hash of the pixels and labels that a training learns from and is chosen by."""
    parts = {"train": train, "valid": valid}
    levels = {f"{name} levels": part.levels for name, part in parts.items()}
    return weights_hash(levels | {f"{name} labels": part.labels for name, part in parts.items()})


def split(pictures: Pictures, share: float, seed: int) -> tuple[Pictures, Pictures]:
    """Part the images at random into those to train on and a share to validate on."""
    train, valid = held_out([str(row) for row in range(len(pictures))], share, seed)
    return pictures.only(train), pictures.only(valid)


def held_out(groups: Sequence[str], share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Part rows at random into those to train on and a share to validate on, never within a group."""
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    order = torch.randperm(len(members), generator=torch.Generator().manual_seed(seed)).tolist()
    names, wanted = list(members), max(1, round(share * len(groups)))
    valid: list[int] = []
    while order and len(valid) < wanted:
        valid += members[names[order.pop(0)]]
    if not order:
        got = f"{len(groups)} images in {len(members)} group(s)"
        raise InputError(
            expected("images", "enough for a part to train on and one to validate on", got, "give more")
        )
    train = [row for place in order for row in members[names[place]]]
    return torch.tensor(train), torch.tensor(valid)
