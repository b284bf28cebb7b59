"""One PNG of a run: input, counterfactual, difference and mask of each image, side by side."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fastdime.data import io
from fastdime.errors import DataError, InputError, expected
from fastdime.files import write_atomically
from fastdime.pipeline.summary import read_explained
from fastdime.runs import Record, image_path, mask_path

SMALL, LARGE = 128, 256  # pixels of a picture: smaller ones are enlarged, larger ones made smaller
GAP, CAPTION = 6, 28
ONE_BLOCK = 6  # images; more are drawn in two blocks side by side
LONGEST_ID = 40  # letters; more would run into the next block
COLUMNS = ("input", "counterfactual", "difference", "mask")
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """Where things stand: `shown` is the size (width, height) of one picture on the sheet."""

    images: int
    shown: tuple[int, int]

    @property
    def across(self) -> int:
        """Blocks side by side."""
        return 1 if self.images <= ONE_BLOCK else 2

    @property
    def rows(self) -> int:
        """Images in a block."""
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
        return (self._cell + GAP) * len(COLUMNS) + GAP, self.shown[1] + CAPTION + GAP


def draw_run(run: str | Path, out: str | Path, limit: int = 12) -> Path:
    """Draw the first images of a run; returns the path of the picture."""
    if limit < 1:
        raise InputError(expected("limit", "1 or more", limit))
    config, records = read_explained(run)
    good = [record for record in records if "error" not in record][:limit]
    if not good:
        raise DataError(expected(str(run), "at least one finished image", "none"))
    rows = [_pictures(run, config, record) for record in good]
    height, width = rows[0][0].shape[:2]
    layout = Layout(len(good), shown_size(width, height))
    sheet = Image.new("RGB", layout.size, "white")
    draw = ImageDraw.Draw(sheet)
    for first in range(0, len(good), layout.rows):
        for column, name in enumerate(COLUMNS):
            draw.text((layout.corner(first, column)[0], GAP), name, fill="black")
    for number, (record, cells) in enumerate(zip(good, rows, strict=True)):
        _draw_row(sheet, layout, number, cells)
        left, top = layout.corner(number)
        colour = "black" if record["valid"] else "firebrick"
        draw.text((left, top + layout.shown[1] + 2), caption(record), fill=colour)
    return _written(sheet, Path(out))


def shown_size(width: int, height: int) -> tuple[int, int]:
    """Return the size at which a picture is drawn; small ones are enlarged by a whole number.

    >>> shown_size(32, 32), shown_size(224, 224), shown_size(1024, 512)
    ((128, 128), (224, 224), (256, 128))
    """
    longest = max(width, height)
    if longest <= SMALL:
        return width * (SMALL // longest), height * (SMALL // longest)
    factor = min(1.0, LARGE / longest)
    return max(1, round(width * factor)), max(1, round(height * factor))


def _pictures(run: str | Path, config: dict[str, object], record: Record) -> list[Picture]:
    size, convert = config.get("size"), bool(config.get("convert"))
    after = io.read(image_path(run, record["id"]))
    channels = after.x.shape[0]
    fitted = size if isinstance(size, int) else None
    before = io.read(record["path"], channels=channels, size=fitted, convert=convert)
    mask = io.read_mask(mask_path(run, record["id"]))
    if before.x.shape != after.x.shape:
        sizes = ["x".join(map(str, picture.x.shape[1:])) for picture in (after, before)]
        remedy = "the file is not the one that was explained"
        raise DataError(expected(str(record["path"]), f"{sizes[0]} pixels", sizes[1], remedy))
    difference = (after.x - before.x).mean(0).numpy() / 2
    return [
        _shown(before.x.numpy()),
        _shown(after.x.numpy()),
        signed(difference),
        _shown(mask.numpy() * 2.0 - 1),
    ]


def _shown(x: NDArray[np.floating]) -> Picture:
    levels: Picture = np.clip((x + 1) * 127.5, 0, 255).round().astype(np.uint8)
    return np.broadcast_to(levels, (3, *levels.shape[1:])).transpose(1, 2, 0).copy()


def signed(difference: NDArray[np.floating]) -> Picture:
    """Draw a signed map: red where something came, blue where something went, white where nothing did."""
    reach = max(float(np.abs(difference).max()), 1e-6)
    share = np.clip(difference / reach, -1, 1)[..., None]
    red, blue, white = np.array([200, 30, 30]), np.array([30, 60, 200]), np.array([255, 255, 255])
    colour = np.where(share > 0, white + share * (red - white), white - share * (blue - white))
    picture: Picture = colour.round().astype(np.uint8)
    return picture


def _draw_row(sheet: Image.Image, layout: Layout, number: int, cells: list[Picture]) -> None:
    for column, cell in enumerate(cells):
        larger = layout.shown[0] > cell.shape[1]
        way = Image.Resampling.NEAREST if larger else Image.Resampling.BICUBIC
        left, top = layout.corner(number, column)
        # A frame, because a white mask on a white sheet cannot be seen.
        frame = (left - 1, top - 1, left + layout.shown[0], top + layout.shown[1])
        ImageDraw.Draw(sheet).rectangle(frame, outline="silver")
        sheet.paste(Image.fromarray(cell).resize(layout.shown, way), (left, top))


def caption(record: Record) -> str:
    """Return the line below an image; the font that is always there has no letters beyond ASCII."""
    name = " ".join(record["id"].encode("ascii", "backslashreplace").decode().split())
    name = name if len(name) <= LONGEST_ID else f"...{name[-LONGEST_ID:]}"
    odds = f"p(class {record['target']}) {record['p_before']:.2f} -> {record['p_after']:.2f}"
    return f"{name}: {odds}, {'reached' if record['valid'] else 'not reached'}"


def _written(sheet: Image.Image, path: Path) -> Path:
    if path.suffix.lower() != ".png":
        raise InputError(expected(str(path), "a name that ends in .png", repr(path.suffix)))
    buffer = BytesIO()
    sheet.save(buffer, format="PNG")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(expected(str(path), "a place that can be written", error.strerror)) from None
    write_atomically(path, buffer.getvalue())
    return path
