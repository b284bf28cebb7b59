"""One picture of a set on disk: images beside their exact counterfactuals."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from fastdime.data import io
from fastdime.data.phantoms.write import OTHER, PLACEBO, REGION, read_config, truth_path
from fastdime.data.table import read_table
from fastdime.errors import InputError, expected
from fastdime.files import not_writable, write_atomically

CELL = 128  # pixels of one picture, at least
GAP, CAPTION = 6, 18
LABELS = ("task", "shortcut", "placebo")
PAPER = "#e4e4e4"  # not white, or nobody sees where a difference map ends
RED, BLUE = np.array([200, 30, 30]), np.array([30, 60, 200])
Shown = NDArray[np.uint8]  # (h, w, 3)


def draw_set(folder: str | Path, out: str | Path, limit: int = 12) -> Path:
    """Draw the first images of a set with the truth about them; returns the path of the picture.

    Each row has the image, the same subject with the shortcut added or removed, their difference (red where
    something came, blue where it went), the true region, and the subject with the placebo switched.
    """
    if limit < 1:
        raise InputError(expected("limit", "1 or more", limit))
    config, table = read_config(folder), read_table(Path(folder) / "table.csv").head(limit)
    rows = [_cells(folder, name, path) for name, path in zip(table.ids, table.paths, strict=True)]
    captions = [_caption(config, table.labels, row) for row in range(len(table))]
    titles = ["image", f"{config['shortcut']} switched", "difference", "true region"]
    sheet = _sheet(rows, captions, [*titles, f"{config['placebo']} switched"])
    buffer, path = BytesIO(), Path(out)
    sheet.save(buffer, format="PNG")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(path, error) from None
    write_atomically(path, buffer.getvalue())
    return path


def _cells(folder: str | Path, name: str, path: Path) -> list[Shown]:
    image, other = io.read(path).x, io.read(truth_path(folder, OTHER, name)).x
    region = io.read_mask(truth_path(folder, REGION, name))
    placebo = io.read(truth_path(folder, PLACEBO, name)).x
    difference = _signed((other - image).mean(0).numpy())
    return [_shown(image), _shown(other), difference, _shown(region * 2.0 - 1), _shown(placebo)]


def _caption(config: dict[str, Any], labels: Mapping[str, Sequence[float]], row: int) -> str:
    words = [f"{config[name]}: {'yes' if labels[name][row] else 'no'}" for name in LABELS]
    latent = config["task_latent"]
    return ", ".join([*words, f"{latent} {labels[latent][row]:.2f}"])


def _shown(x: Tensor) -> Shown:
    levels = ((x.numpy() + 1) * 127.5).round().astype(np.uint8)
    return np.broadcast_to(levels, (3, *levels.shape[1:])).transpose(1, 2, 0).copy()


def _signed(difference: NDArray[np.floating[Any]]) -> Shown:
    share = (difference / max(float(np.abs(difference).max()), 1e-6))[..., None]
    colour = 255 + np.where(share > 0, share * (RED - 255), -share * (BLUE - 255))
    return np.asarray(colour.round().astype(np.uint8))


def _sheet(rows: Sequence[list[Shown]], captions: list[str], titles: list[str]) -> Image.Image:
    size = rows[0][0].shape[0]
    cell = size * max(1, -(-CELL // size))
    across = 1 if len(rows) <= 6 else 2
    down = -(-len(rows) // across)
    width, height = (cell + GAP) * len(titles) + 2 * GAP, cell + CAPTION + GAP
    sheet = Image.new("RGB", (width * across, height * down + CAPTION), PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, (cells, caption) in enumerate(zip(rows, captions, strict=True)):
        left, top = (number // down) * width + GAP, CAPTION + (number % down) * height
        for column, pixels in enumerate(cells):
            picture = Image.fromarray(pixels).resize((cell, cell), Image.Resampling.NEAREST)
            sheet.paste(picture, (left + column * (cell + GAP), top))
        draw.text((left, top + cell + 2), caption, fill="black")
    for block in range(across):
        for column, title in enumerate(titles):
            draw.text((block * width + GAP + column * (cell + GAP), 3), title, fill="black")
    return sheet
