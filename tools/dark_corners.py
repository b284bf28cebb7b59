"""How well dark corners alone tell which images have the shortcut: a guide may have learned no more.

python tools/dark_corners.py isic/fastdime.csv
"""

import sys

import torch
from sklearn.metrics import roc_auc_score

from fastdime.data import io
from fastdime.data.table import read_table

SIDE = 0.1  # of a corner, as a share of the image


def main(path: str, column: str = "shortcut") -> None:
    table = read_table(path).where("split=test")
    darkness = [corner_darkness(io.read(image).x) for image in table.paths]
    print(f"{len(table)} images, AUROC {roc_auc_score(table.binary(column), darkness):.3f}")


def corner_darkness(x: torch.Tensor) -> float:
    """Return how much darker the four corners are than the image, as a share of its brightness."""
    bright = (x.mean(0) + 1) / 2
    side = round(SIDE * len(bright))
    ends = (slice(None, side), slice(-side, None))
    corners = torch.stack([bright[rows, columns].mean() for rows in ends for columns in ends])
    return float(1 - corners.mean() / bright.mean())


if __name__ == "__main__":
    main(*sys.argv[1:])
