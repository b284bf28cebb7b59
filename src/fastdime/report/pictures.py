"""Pictures that travel inside a page: small PNG files written as text, and a limit to all of them."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from fastdime.data import io
from fastdime.errors import DataError
from fastdime.pipeline.pairs import Pairs, Place, read_pair
from fastdime.sheets import Picture as Pixels
from fastdime.sheets import shown, signed

SMALL = 128  # pixels; pictures up to this size are enlarged with their pixels visible
STRIP = 128  # pixels of the states of a path, which are shown small


class PageTooLarge(Exception):
    """The pictures no longer fit; smaller or fewer ones may."""


@dataclass(frozen=True)
class Picture:
    """One picture of a page; without `uri` there is a `note` that says why.

    Attributes:
        alt: what it shows, for those who do not see it.
        coarse: whether its pixels are so few that they should be shown as squares.
    """

    title: str
    alt: str
    uri: str = ""
    note: str = ""
    coarse: bool = False


@dataclass
class Shelf:
    """Turns pixels into text and counts how much there is.

    Attributes:
        longest: pixels of the longer side; larger pictures are made smaller.
        room: letters of text that all pictures may take.
    """

    longest: int
    room: int
    used: int = field(default=0, init=False)
    missing: int = field(default=0, init=False)

    def put(self, title: str, alt: str, pixels: Pixels, longest: int | None = None) -> Picture:
        """Take a picture in.

        Args:
            longest: pixels of the longer side, if fewer will do.

        Raises:
            PageTooLarge: there is no room left.
        """
        side = self.longest if longest is None else min(longest, self.longest)
        uri = f"data:image/png;base64,{b64encode(_png(pixels, side)).decode()}"
        self.used += len(uri)
        if self.used > self.room:
            raise PageTooLarge
        return Picture(title, alt, uri, coarse=max(pixels.shape[:2]) <= SMALL)

    def gap(self, title: str, path: Path, error: DataError) -> Picture:
        """Say why a picture is not there; of its path only the name is told, because pages travel."""
        self.missing += 1
        gone = f"{path.name} is no longer where it was"
        note = gone if not path.exists() else str(error).replace(str(path), path.name)
        return Picture(title, f"{title}: not available", note=f"{note}.")


def _png(pixels: Pixels, longest: int) -> bytes:
    image = Image.fromarray(pixels)
    if np.array_equal(pixels[..., 0], pixels[..., 1]) and np.array_equal(pixels[..., 0], pixels[..., 2]):
        image = image.getchannel(0)
    factor = longest / max(image.size)
    if factor < 1:
        width, height = (max(1, round(side * factor)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BOX)
    buffer = BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def pair_pictures(shelf: Shelf, pairs: Pairs, place: Place, done: str) -> list[Picture]:
    """Return original, counterfactual, difference and mask of one image, or why they are not there.

    Args:
        done: what the counterfactual is, for those who do not see it.
    """
    alts = [f"Original of {place.image_id}", f"Counterfactual of {place.image_id}: {done}"]
    try:
        before, after, _ = read_pair(replace(place, mask=None), pairs.size, pairs.convert)
    except DataError:
        first = plain(shelf, "Original", alts[0], place.original, pairs.size)
        second = plain(shelf, "Counterfactual", alts[1], place.counterfactual)
        return [first, second, _no_difference(place, first, second), _mask(shelf, place)]
    return [
        shelf.put("Original", alts[0], shown(before.numpy())),
        shelf.put("Counterfactual", alts[1], shown(after.numpy())),
        _difference(shelf, place, (after - before).mean(0)),
        _mask(shelf, place),
    ]


def _difference(shelf: Shelf, place: Place, difference: Tensor) -> Picture:
    largest = float(difference.abs().max()) / 2
    told = f"largest change {largest:.2f} on the scale from 0 to 1" if largest else "nothing changed"
    return shelf.put("Difference", f"Difference map of {place.image_id}: {told}", signed(difference.numpy()))


def _no_difference(place: Place, *pair: Picture) -> Picture:
    there = all(picture.uri for picture in pair)
    note = "The two pictures do not fit together." if there else "A difference needs both pictures."
    return Picture("Difference", f"Difference map of {place.image_id}: not available", note=note)


def _mask(shelf: Shelf, place: Place) -> Picture:
    assert place.mask is not None  # a run has one for each image
    try:
        mask = io.read_mask(place.mask)
    except DataError as error:
        return shelf.gap("Mask", place.mask, error)
    share = f"{100 * float(mask.float().mean()):.0f} %"
    alt = f"Mask of {place.image_id}: {share} of the image may change"
    title = "Mask: everything" if bool(mask.all()) else "Mask" if bool(mask.any()) else "Mask: nothing"
    return shelf.put(title, alt, shown(mask.numpy() * 2.0 - 1))


def plain(shelf: Shelf, title: str, alt: str, path: Path, size: int | None = None) -> Picture:
    """Show a picture as it is (or cut to a square of `size`), or why that cannot be."""
    try:
        return shelf.put(title, alt, shown(io.read(path, size=size).x.numpy()))
    except DataError as error:
        return shelf.gap(title, path, error)


def state(shelf: Shelf, name: str, folder: Path, step: int) -> Picture:
    """Show one state of a path."""
    title, path = f"State {step}", folder / f"{step}.png"
    try:
        return shelf.put(title, f"{title} of the path of {name}", shown(io.read(path).x.numpy()), STRIP)
    except DataError as error:
        return shelf.gap(title, path, error)


def where_there(shelf: Shelf, wanted: Sequence[tuple[str, str, Path]]) -> list[Picture]:
    """Show those of some pictures (title, alt, path) that were made."""
    return [plain(shelf, title, alt, path) for title, alt, path in wanted if path.is_file()]
