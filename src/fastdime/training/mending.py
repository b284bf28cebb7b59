"""Train a classifier that does not lean on a shortcut: with counterfactuals, or with balanced groups."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.errors import DataError, InputError, expected
from fastdime.training.classifying import Classifying
from fastdime.training.pictures import Pictures
from fastdime.weights import weights_hash

CELLS = 4  # task x shortcut; number 2 * task + shortcut


@dataclass(frozen=True)
class Mending:
    """What is done against a shortcut; the three can be combined.

    Attributes:
        augment: show the counterfactual of an image instead of the image every other time.
        consistency: show both, and add so many times the squared difference of their logits.
        balance: draw each of the four cells of task and shortcut equally often. With `augment`
            counterfactuals are in the cells too.
    """

    augment: bool = False
    consistency: float = 0.0
    balance: bool = False

    def __post_init__(self) -> None:
        """Refuse a weight that means nothing, and to do nothing."""
        if not math.isfinite(self.consistency) or self.consistency < 0:
            raise InputError(expected("consistency of the mending", "a weight >= 0", self.consistency))
        if not (self.needs_partners or self.balance):
            raise InputError(expected("mending", "one or more of augment, consistency, balance", "none"))

    @property
    def needs_partners(self) -> bool:
        """Whether it works with counterfactuals."""
        return self.augment or self.consistency > 0


@dataclass(frozen=True)
class Partners:
    """Counterfactuals of some images: the same with the shortcut switched, and the same task label.

    Attributes:
        pictures: the counterfactuals.
        rows: for each of them, the number of the image that it was made from; an image has one or none.
    """

    pictures: Pictures
    rows: Tensor

    def __post_init__(self) -> None:
        """Refuse two of one image."""
        images = len(set(self.rows.tolist()))
        if not len(self.pictures) == len(self.rows) == images:
            got = f"{len(self.pictures)} of {images} images"
            raise InputError(expected("counterfactuals to train with", "one of each image at most", got))


def with_partners(pictures: Pictures, partners: Partners) -> Pictures:
    """Put images and their counterfactuals into one set: a fair one to choose a model by."""
    levels = torch.cat([pictures.levels, partners.pictures.levels])
    labels = torch.cat([pictures.labels, pictures.labels[partners.rows]])
    return Pictures(levels, pictures.bits, labels)


@dataclass(frozen=True, kw_only=True)
class Mended(Classifying):
    """Learn a label without leaning on a shortcut.

    The weights that are kept are those with the lowest loss on `valid`. If the shortcut tells the label
    there, a network that leans on it looks good: give a set `with_partners`.

    Attributes:
        partners: counterfactuals of the training images.
        shortcut, valid_shortcut: 0 or 1 for each training and validation image; needed to balance.
    """

    mending: Mending
    partners: Partners | None = None
    shortcut: Tensor | None = None
    valid_shortcut: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse counterfactuals that are missing or of no use, and cells that are empty."""
        super().__post_init__()
        if self.mending.needs_partners != (self.partners is not None):
            wanted = (
                "some" if self.partners is None else "none, if neither augment nor consistency is asked for"
            )
            got = "none" if self.partners is None else len(self.partners.pictures)
            raise InputError(expected("counterfactuals of the training images", wanted, got))
        if self.partners is not None and self.partners.pictures.form != self.train.form:
            form = self.partners.pictures.form
            raise DataError(expected("counterfactuals", f"{self.train.form}, as the images", form))
        if self.mending.balance:
            _check_cells("training", self._cells)
            _check_cells("validation", self._valid_cells)

    def describe(self) -> dict[str, Any]:
        """What is written down about the task."""
        told: dict[str, Any] = asdict(self.mending)
        if self.partners is not None:
            told["partners"] = len(self.partners.pictures)
            told["partner_data"] = weights_hash(
                {"levels": self.partners.pictures.levels, "rows": self.partners.rows}
            )
        if self.mending.balance:
            told["cell_data"] = weights_hash({"train": self._cells, "valid": self._valid_cells})
        return super().describe() | {"mending": told}

    def draw(self, rows: Tensor, random: torch.Generator) -> tuple[Tensor, ...]:
        """Return the batch of a classifier; for consistency, the other picture of each pair comes last."""
        rows, switched = self._drawn(rows, random)
        labels = self.train.labels[rows]
        again = torch.Generator()  # a pair is shifted and flipped alike: it differs in the shortcut only
        again.set_state(random.get_state())
        batch = self._batch(self._x(rows, switched), labels, random)
        if not self.mending.consistency:
            return batch
        return (*batch, self.augment(self._x(rows, ~switched), labels, again))

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Cross entropy of each image, on logits, and how far apart those of a pair are."""
        if not self.mending.consistency:
            return super().loss(model, *batch)
        x, labels, times, other = batch
        # In one pass: batch norm then sees the same statistics for both.
        both = self._logits(model, torch.cat([x, other]), torch.cat([times, times])).float()
        logits, others = both.chunk(2)
        entropy = self._entropy(logits, labels)
        if self.mending.augment:  # both are there, so no coin needs to be tossed
            entropy = (entropy + self._entropy(others, labels)) / 2
        return entropy + self.mending.consistency * (logits - others) ** 2

    def _drawn(self, rows: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return which images are drawn, and which of them are to be shown with the shortcut switched."""
        if self.mending.balance:
            drawn = balanced(self._cells, len(rows), random)
            return self._owners[drawn], drawn >= len(self.train)
        toss = torch.rand(len(rows), generator=random) < 0.5
        return rows, toss & self.mending.augment

    def _x(self, rows: Tensor, switched: Tensor) -> Tensor:
        """Images, or their counterfactuals where switched; an image that has none stands for it."""
        x = self.train.x(rows)
        if self.partners is not None:
            place = self._places[rows]
            there = switched & (place >= 0)
            x[there] = self.partners.pictures.x(place[there])
        return x

    @cached_property
    def _places(self) -> Tensor:
        """Number of the counterfactual of each image; -1 = it has none."""
        assert self.partners is not None
        places = torch.full((len(self.train),), -1)
        places[self.partners.rows] = torch.arange(len(self.partners.rows))
        return places

    @property
    def _shown(self) -> Partners | None:
        """The counterfactuals that are learned from like images."""
        return self.partners if self.mending.augment else None

    @cached_property
    def _owners(self) -> Tensor:
        """Number of the image behind each picture: images first, then counterfactuals."""
        images = torch.arange(len(self.train))
        return images if self._shown is None else torch.cat([images, self._shown.rows])

    @cached_property
    def _cells(self) -> Tensor:
        """Cell of each picture: images first, then counterfactuals, which have the other shortcut label."""
        cells = _cells_of("training", self.train.labels, self.shortcut)
        return cells if self._shown is None else torch.cat([cells, cells[self._shown.rows] ^ 1])

    @cached_property
    def _valid_cells(self) -> Tensor:
        return _cells_of("validation", self.valid.labels, self.valid_shortcut)

    def _weight(self, labels: Tensor) -> Tensor:
        # Balanced draws have as many of each label already.
        return torch.ones_like(labels) if self.mending.balance else super()._weight(labels)

    def _valid_weight(self) -> Tensor:
        if not self.mending.balance:
            return super()._valid_weight()
        sizes = self._valid_cells.bincount(minlength=CELLS)
        return len(self.valid) / (CELLS * sizes[self._valid_cells])


def balanced(cells: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Draw pictures so that each cell comes up equally often, with the rest of a division at random.

    >>> cells = torch.tensor([0, 0, 0, 0, 0, 1, 2, 3])
    >>> cells[balanced(cells, 8, torch.Generator())].bincount().tolist()
    [2, 2, 2, 2]
    """
    order = cells.argsort(stable=True)
    sizes = cells.bincount(minlength=CELLS)
    first = sizes.cumsum(0) - sizes
    offset = torch.randint(CELLS, (1,), generator=random)
    cell = (torch.randperm(count, generator=random) + offset) % CELLS
    place = torch.rand(count, generator=random, dtype=torch.float64) * sizes[cell]
    return order[first[cell] + place.long()]


def _cells_of(name: str, task: Tensor, shortcut: Tensor | None) -> Tensor:
    if shortcut is None or shortcut.shape != task.shape:
        got = "none" if shortcut is None else len(shortcut)
        raise InputError(expected(f"shortcut labels to balance {name} images", f"{len(task)} of them", got))
    if not bool(((shortcut == 0) | (shortcut == 1)).all()):
        got = sorted(set(shortcut.tolist()) - {0, 1})[0]
        raise DataError(expected(f"shortcut labels of the {name} images", "0 or 1", got, "leave others out"))
    return 2 * task.long() + shortcut.long()


def _check_cells(name: str, cells: Tensor) -> None:
    sizes = cells.bincount(minlength=CELLS)
    if not bool(sizes.all()):
        task, shortcut = divmod(int(sizes.argmin()), 2)
        what = f"{name} images with task {task} and shortcut {shortcut}"
        remedy = "only counterfactuals can fill this cell: make some, and mend with augment"
        raise DataError(expected(what, "at least one, to balance the cells", "none", remedy))
