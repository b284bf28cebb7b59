"""Rows of images as one image, for a person to look at."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

GAP = 2  # pixels between images
PAPER = 0.5


def sheet(rows: Sequence[Tensor]) -> Tensor:
    """Lay rows of images (n, c, h, w) of one size below each other; a short row ends in paper.

    >>> sheet([torch.zeros(3, 1, 8, 8), torch.zeros(2, 1, 8, 8)]).shape
    torch.Size([1, 22, 32])
    """
    most = max(len(row) for row in rows)
    lines = [_line(row.detach().float().cpu().clamp(-1, 1), most) for row in rows]
    return pad(torch.cat(lines, dim=1), (GAP, 0, GAP, 0), value=PAPER)


def _line(row: Tensor, most: int) -> Tensor:
    blank = row.new_full((most - len(row), *row.shape[1:]), PAPER)
    cells = pad(torch.cat([row, blank]), (0, GAP, 0, GAP), value=PAPER)
    return torch.cat(list(cells), dim=2)
