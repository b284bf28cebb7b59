"""How well dark corners alone tell which images have the shortcut, and what classifiers know beyond that.

python tools/dark_corners.py isic/fastdime.csv guide/classifier oracle/classifier
"""

import sys

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from fastdime.classifiers.load import load_classifier
from fastdime.data import io
from fastdime.data.table import read_table
from fastdime.training.augment import with_dark_corners

SIDE = 0.1  # of a corner, as a share of the image
GROUPS = 4  # of images with corners that are alike
BATCH = 64
Numbers = NDArray[np.float64]


def main(path: str, *classifiers: str) -> None:
    table = read_table(path).where("split=test")
    shown = np.array(table.binary("shortcut"))
    darkness = np.array([corner_darkness(io.read(image).x) for image in table.paths])
    print(f"{len(table)} images, corners alone: AUROC {roc_auc_score(shown, darkness):.3f}")
    for source in classifiers:
        classifier = load_classifier(source)
        x = torch.stack([io.read(image, size=classifier.size).x for image in table.paths])
        random = torch.Generator().manual_seed(0)
        plain, corners = answers(classifier, x), answers(classifier, with_dark_corners(x, random))
        without = shown == 0
        print(
            f"{source}: AUROC {roc_auc_score(shown, plain):.3f}, among images with corners alike "
            f"{within(shown, plain, darkness):.3f}; sees it in {np.mean(plain[without] > 0):.3f} of the "
            f"images without, in {np.mean(corners[without] > 0):.3f} once corners are drawn"
        )


def within(shown: Numbers, answer: Numbers, darkness: Numbers) -> float:
    """Return the mean AUROC in groups of images whose corners are about as dark as each other's."""
    groups = np.array_split(np.argsort(darkness), GROUPS)
    mixed = [rows for rows in groups if 0 < shown[rows].mean() < 1]
    weights = [min(shown[rows].sum(), len(rows) - shown[rows].sum()) for rows in mixed]
    return float(np.average([roc_auc_score(shown[rows], answer[rows]) for rows in mixed], weights=weights))


@torch.no_grad()
def answers(classifier: torch.nn.Module, x: torch.Tensor) -> Numbers:
    """Return the logit of the shortcut for each image."""
    parts = [classifier.logits(part, torch.zeros(len(part), dtype=torch.int64)) for part in x.split(BATCH)]
    return np.asarray(torch.cat(parts)[:, -1], dtype=np.float64)


def corner_darkness(x: torch.Tensor) -> float:
    """Return how much darker the four corners are than the image, as a share of its brightness."""
    bright = (x.mean(0) + 1) / 2
    side = round(SIDE * len(bright))
    ends = (slice(None, side), slice(-side, None))
    corners = torch.stack([bright[rows, columns].mean() for rows in ends for columns in ends])
    return float(1 - corners.mean() / bright.mean())


if __name__ == "__main__":
    main(*sys.argv[1:])
