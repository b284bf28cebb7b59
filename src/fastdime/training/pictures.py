"""Images in memory as integers, a few bytes a pixel, with their labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastdime.data import io
from fastdime.data.table import Table
from fastdime.errors import DataError, InputError, expected
from fastdime.pixels import from_integers, to_integers

LARGEST = 8 * 2**30  # bytes of images that are kept in memory


@dataclass(frozen=True)
class Pictures:
    """Images (n, c, h, w) as 8- or 16-bit integers, and one label an image (NaN: not known)."""

    levels: Tensor
    bits: int
    labels: Tensor

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.levels)

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
    progress: Callable[[float, int], None] | None = None,
) -> Pictures:
    """Read all images of a table; they must have one shape and depth.

    Args:
        size, channels, convert: as for `io.read`.
    """
    first = io.read(table.paths[0], size=size, channels=channels, convert=convert)
    bytes_needed = len(table) * first.x.numel() * first.bits // 8
    if bytes_needed > LARGEST:
        raise InputError(
            expected("images", f"at most {LARGEST >> 30} GiB in memory", f"{bytes_needed >> 30} GiB")
        )
    dtype = torch.uint8 if first.bits == 8 else torch.int32
    levels = torch.empty((len(table), *first.x.shape), dtype=dtype)
    for row, path in enumerate(table.paths):
        picture = io.read(path, size=size, channels=first.x.shape[0], convert=convert)
        if picture.x.shape != first.x.shape or picture.bits != first.bits:
            shape = f"{tuple(first.x.shape)} with {first.bits} bits, as the first image"
            raise DataError(expected(str(path), shape, f"{tuple(picture.x.shape)} with {picture.bits} bits"))
        levels[row] = to_integers(picture.x, picture.bits).to(dtype)
        if progress is not None:
            progress(row + 1, len(table))
    values = table.column(label) if label is not None else [float("nan")] * len(table)
    return Pictures(levels, first.bits, torch.tensor(values))


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
