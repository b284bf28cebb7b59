"""One picture of a set on disk: images beside their exact counterfactuals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastdime.data import io
from fastdime.data.phantoms.write import OTHER, PLACEBO, REGION, read_config, truth_path
from fastdime.data.table import read_table
from fastdime.errors import InputError, expected
from fastdime.sheets import Picture, Row, draw_sheet, shown, signed, write_sheet

LABELS = ("task", "shortcut", "placebo")


def draw_set(folder: str | Path, out: str | Path, limit: int = 12) -> Path:
    """Draw the first images of a set with the truth about them; returns the path of the picture.

    Each row has the image, the same subject with the shortcut added or removed, their difference (red where
    something came, blue where it went), the true region, and the subject with the placebo switched.
    """
    if limit < 1:
        raise InputError(expected("limit", "1 or more", limit))
    config, table = read_config(folder), read_table(Path(folder) / "table.csv").head(limit)
    rows = [
        Row(_pictures(folder, name, path), _caption(config, table.labels, row))
        for row, (name, path) in enumerate(zip(table.ids, table.paths, strict=True))
    ]
    titles = ["image", f"{config['shortcut']} switched", "difference", "true region"]
    return write_sheet(out, draw_sheet([*titles, f"{config['placebo']} switched"], rows))


def _pictures(folder: str | Path, name: str, path: Path) -> list[Picture]:
    image, other = io.read(path).x, io.read(truth_path(folder, OTHER, name)).x
    region = io.read_mask(truth_path(folder, REGION, name)) * 2.0 - 1
    placebo = io.read(truth_path(folder, PLACEBO, name)).x
    difference = signed((other - image).mean(0).numpy())
    return [
        shown(image.numpy()),
        shown(other.numpy()),
        difference,
        shown(region.numpy()),
        shown(placebo.numpy()),
    ]


def _caption(config: dict[str, Any], labels: Mapping[str, Sequence[float]], row: int) -> str:
    words = [f"{config[name]}: {'yes' if labels[name][row] else 'no'}" for name in LABELS]
    latent = config["task_latent"]
    return ", ".join([*words, f"{latent} {labels[latent][row]:.2f}"])
