"""One PNG of a run: input, counterfactual, difference and mask of each image, side by side."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fastdime.data import io
from fastdime.errors import DataError, expected
from fastdime.runs import Record, image_path, mask_path, read_run

CELL = 128  # pixels of one picture
GAP, CAPTION = 6, 28
COLUMNS = ("input", "counterfactual", "difference", "mask")
Picture = NDArray[np.uint8]


def draw_run(run: str | Path, out: str | Path, limit: int = 12) -> Path:
    """Draw the first images of a run; returns the path of the picture."""
    config, records = read_run(run)
    good = [record for record in records if "error" not in record][:limit]
    if not good:
        raise DataError(expected(str(run), "at least one finished image", "none"))
    across = 1 if len(good) <= 6 else 2
    rows = -(-len(good) // across)
    width, height = (CELL + GAP) * len(COLUMNS) + GAP, CELL + CAPTION + GAP
    sheet = Image.new("RGB", (width * across, height * rows + CAPTION), "white")
    draw = ImageDraw.Draw(sheet)
    for block in range(across):
        for column, name in enumerate(COLUMNS):
            draw.text((block * width + GAP + column * (CELL + GAP), GAP), name, fill="black")
    for number, record in enumerate(good):
        corner = ((number // rows) * width + GAP, CAPTION + (number % rows) * height)
        _draw_row(sheet, draw, corner, record, _pictures(run, config, record))
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG")
    return path


def _pictures(run: str | Path, config: dict[str, object], record: Record) -> list[Picture]:
    size, convert = config.get("size"), bool(config.get("convert"))
    after = io.read(image_path(run, record["id"]))
    channels = after.x.shape[0]
    fitted = size if isinstance(size, int) else None
    before = io.read(record["path"], channels=channels, size=fitted, convert=convert)
    mask = io.read_mask(mask_path(run, record["id"]))
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


def _draw_row(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    record: Record,
    cells: list[Picture],
) -> None:
    left, top = corner
    for column, cell in enumerate(cells):
        picture = Image.fromarray(cell)
        picture.thumbnail((CELL, CELL))
        scale = max(1, CELL // max(picture.size))
        picture = picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
        sheet.paste(picture, (left + column * (CELL + GAP), top))
    verdict = "reached" if record["valid"] else "not reached"
    odds = f"p(class {record['target']}) {record['p_before']:.2f} -> {record['p_after']:.2f}"
    text = f"{record['id']}: {odds}, {verdict}"
    draw.text((left, top + CELL + 2), text, fill="black" if record["valid"] else "firebrick")
