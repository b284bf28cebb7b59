"""One picture of many: rows of images under titles, each row with a caption, small enough to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fastdime.errors import InputError, expected
from fastdime.files import not_writable, write_atomically

SMALL, LARGE = 128, 256  # pixels of a picture: smaller ones are enlarged, larger ones made smaller
GAP, CAPTION = 6, 28
ONE_BLOCK = 6  # rows; more are drawn in two blocks side by side
Picture = NDArray[np.uint8]  # (h, w, 3)


@dataclass(frozen=True)
class Row:
    """Pictures side by side, and the line below them."""

    pictures: Sequence[Picture]
    caption: str = ""
    colour: str = "black"


@dataclass(frozen=True)
class Layout:
    """Where things stand: `shown` is the size (width, height) of one picture on the sheet."""

    images: int
    shown: tuple[int, int]
    columns: int = 4

    @property
    def across(self) -> int:
        """Blocks side by side."""
        return 1 if self.images <= ONE_BLOCK else 2

    @property
    def rows(self) -> int:
        """Rows in a block."""
        return -(-self.images // self.across)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the sheet."""
        width, height = self._block
        return width * self.across, height * self.rows + CAPTION

    def corner(self, number: int, column: int = 0) -> tuple[int, int]:
        """Return the upper left corner of a picture."""
        width, height = self._block
        block, row = divmod(number, self.rows)
        return block * width + GAP + column * (self._cell + GAP), CAPTION + row * height

    @property
    def _cell(self) -> int:
        return max(SMALL, self.shown[0])  # the name of a column needs room above a narrow picture

    @property
    def _block(self) -> tuple[int, int]:
        return (self._cell + GAP) * self.columns + GAP, self.shown[1] + CAPTION + GAP


def draw_sheet(titles: Sequence[str], rows: Sequence[Row]) -> Image.Image:
    """Draw rows of pictures; all are shown at the size of the first."""
    height, width = rows[0].pictures[0].shape[:2]
    layout = Layout(len(rows), shown_size(width, height), len(titles))
    sheet = Image.new("RGB", layout.size, "white")
    draw = ImageDraw.Draw(sheet)
    for first in range(0, len(rows), layout.rows):
        for column, title in enumerate(titles):
            draw.text((layout.corner(first, column)[0], GAP), title, fill="black")
    for number, row in enumerate(rows):
        _draw_pictures(sheet, layout, number, row.pictures)
        left, top = layout.corner(number)
        draw.text((left, top + layout.shown[1] + 2), row.caption, fill=row.colour)
    return sheet


def _draw_pictures(sheet: Image.Image, layout: Layout, number: int, pictures: Sequence[Picture]) -> None:
    for column, picture in enumerate(pictures):
        place_picture(sheet, picture, layout.corner(number, column), layout.shown)


def place_picture(
    sheet: Image.Image,
    picture: Picture,
    corner: tuple[int, int],
    size: tuple[int, int],
    frame: str = "silver",
    thick: int = 1,
) -> None:
    """Put a picture on a sheet at a size, with its upper left corner in a place and a frame around it."""
    way = Image.Resampling.NEAREST if size[0] > picture.shape[1] else Image.Resampling.BICUBIC
    (left, top), (width, height) = corner, size
    # A frame, because a white mask on a white sheet cannot be seen.
    around = (left - thick, top - thick, left + width + thick - 1, top + height + thick - 1)
    ImageDraw.Draw(sheet).rectangle(around, outline=frame, width=thick)
    sheet.paste(Image.fromarray(picture).resize(size, way), corner)


def shown_size(width: int, height: int, largest: int = LARGE) -> tuple[int, int]:
    """Return the size at which a picture is drawn; small ones are enlarged by a whole number.

    >>> shown_size(32, 32), shown_size(224, 224), shown_size(1024, 512)
    ((128, 128), (224, 224), (256, 128))
    """
    longest = max(width, height)
    if longest <= SMALL:
        return width * (SMALL // longest), height * (SMALL // longest)
    factor = min(1.0, largest / longest)
    return max(1, round(width * factor)), max(1, round(height * factor))


def shown(x: NDArray[np.floating[Any]]) -> Picture:
    """Draw an image of [-1, 1], (c, h, w), gray or in colour."""
    levels: Picture = np.clip((x + 1) * 127.5, 0, 255).round().astype(np.uint8)
    return np.broadcast_to(levels, (3, *levels.shape[1:])).transpose(1, 2, 0).copy()


def signed(difference: NDArray[np.floating[Any]], reach: float | None = None) -> Picture:
    """Draw a signed map: red where something came, blue where something went, white where nothing did.

    Args:
        reach: the difference that has full colour; the largest there is unless given.
    """
    full = max(float(np.abs(difference).max()), 1e-6) if reach is None else reach
    share = np.clip(difference / full, -1, 1)[..., None]
    red, blue, white = np.array([200, 30, 30]), np.array([30, 60, 200]), np.array([255, 255, 255])
    colour = np.where(share > 0, white + share * (red - white), white - share * (blue - white))
    picture: Picture = colour.round().astype(np.uint8)
    return picture


def write_sheet(path: str | Path, sheet: Image.Image) -> Path:
    """Write a sheet as a PNG, in a folder that is made if need be."""
    file = Path(path)
    if file.suffix.lower() != ".png":
        raise InputError(expected(str(file), "a name that ends in .png", repr(file.suffix)))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(file, error) from None
    write_atomically(file, encoded(sheet))
    return file


def encoded(sheet: Image.Image) -> bytes:
    """Return a sheet as the bytes of a PNG."""
    buffer = BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()
