"""The four phantoms: images, labels, latents and exact counterfactuals, by seed and index."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from fastdime.data.phantoms.chest_studies import CHEST_DRAIN, CHEST_PACEMAKER
from fastdime.data.phantoms.design import Dials, Labels, check_indices, check_seed, draw_labels, parse_k
from fastdime.data.phantoms.face_study import FACE_SMILE
from fastdime.data.phantoms.skin import SKIN_RULER
from fastdime.data.phantoms.study import Study, Subject
from fastdime.errors import InputError, expected, unknown
from fastdime.pixels import from_integers, top_level

STUDIES = {study.name: study for study in (CHEST_PACEMAKER, CHEST_DRAIN, SKIN_RULER, FACE_SMILE)}
SMALLEST, LARGEST = 32, 224
SEEN = 0.04  # a pixel belongs to the region if a channel changes by more, on the scale of [-1, 1]
DEFAULT_DIALS = Dials()


@dataclass(frozen=True)
class Images:
    """Images as they would be in files, with their labels.

    Attributes:
        x: the images, on the 8-bit grid.
        y: the class each image was drawn for.
        task: the label on record; it differs from y only through label noise.
        shortcut, placebo: whether the image shows them.
        latents: every random quantity by name; `z` and the physical task latent among them.
    """

    x: Float[Tensor, "b c h w"]
    y: Int[Tensor, " b"]
    task: Int[Tensor, " b"]
    shortcut: Int[Tensor, " b"]
    placebo: Int[Tensor, " b"]
    latents: dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Batch(Images):
    """Images with their exact counterfactuals.

    Attributes:
        other: the same subject with the shortcut added or removed.
        placebo_other: the same subject with the placebo added or removed.
    """

    other: Float[Tensor, "b c h w"]
    placebo_other: Float[Tensor, "b c h w"]

    @cached_property
    def region(self) -> Bool[Tensor, "b 1 h w"]:
        """Where the shortcut shows: every pixel that it changes by more than .04."""
        return (self.x - self.other).abs().amax(1, keepdim=True) > SEEN

    @cached_property
    def placebo_region(self) -> Bool[Tensor, "b 1 h w"]:
        """Where the placebo shows."""
        return (self.x - self.placebo_other).abs().amax(1, keepdim=True) > SEEN

    @property
    def without(self) -> Float[Tensor, "b c h w"]:
        """Every subject without the shortcut."""
        return torch.where(self._has_shortcut, self.other, self.x)

    @property
    def with_shortcut(self) -> Float[Tensor, "b c h w"]:
        """Every subject with the shortcut."""
        return torch.where(self._has_shortcut, self.x, self.other)

    @property
    def _has_shortcut(self) -> Tensor:
        return (self.shortcut == 1).view(-1, 1, 1, 1)


@dataclass(frozen=True)
class Phantom:
    """One of the four phantoms at one size; an image depends on (seed, index, k, dials) only."""

    study: Study
    size: int
    dials: Dials

    def labels(self, seed: int, indices: Iterable[int], k: str | float | None = 50) -> Labels:
        """Return the labels of some images without drawing them."""
        return draw_labels(check_seed(seed), check_indices(indices), parse_k(k), self.dials)

    def latents(self, seed: int, indices: Iterable[int]) -> dict[str, NDArray[np.float64]]:
        """Return the latents of some images without drawing them."""
        seed = check_seed(seed)
        return _columns([self.study.subject(seed, index, self.dials) for index in check_indices(indices)])

    def images(self, seed: int, indices: Iterable[int], k: str | float | None = 50) -> Images:
        """Draw some images without their counterfactuals, in less time."""
        numbers = check_indices(indices)
        labels = self.labels(seed, numbers, k)
        subjects = [self.study.subject(seed, index, self.dials) for index in numbers]
        [x] = self._draw(subjects, labels, versions=[(0, 0)])
        return Images(x, *_tensors(labels), _columns(subjects))

    def render(self, seed: int, indices: Iterable[int], k: str | float | None = 50) -> Batch:
        """Draw some images with their exact counterfactuals.

        Args:
            indices: which images; even ones are of class 0, odd ones of class 1.
            k: share of the diseased with the shortcut and of the healthy without it, in percent; None leaves
                the shortcut independent of the class, in a share of images that the dials set.

        >>> batch = phantom("chest-pacemaker").render(seed=0, indices=range(4), k=100)
        >>> batch.x.shape, batch.task.tolist()
        (torch.Size([4, 1, 64, 64]), [0, 1, 0, 1])
        """
        numbers = check_indices(indices)
        labels = self.labels(seed, numbers, k)
        subjects = [self.study.subject(seed, index, self.dials) for index in numbers]
        x, other, placebo_other = self._draw(subjects, labels, versions=[(0, 0), (1, 0), (0, 1)])
        return Batch(x, *_tensors(labels), _columns(subjects), other, placebo_other)

    def _draw(
        self, subjects: list[Subject], labels: Labels, versions: list[tuple[int, int]]
    ) -> Iterator[Tensor]:
        """Draw each image in versions that have (shortcut, placebo) switched or not."""
        shape = (len(versions), len(subjects), self.study.channels, self.size, self.size)
        levels = np.empty(shape, dtype=np.uint8)
        for row, subject in enumerate(subjects):
            scene = self.study.scene(subject, self.dials, self.size)
            shown = int(labels.shortcut[row]), int(labels.placebo[row])
            for number, (shortcut, placebo) in enumerate(versions):
                switched = bool(shown[0] ^ shortcut), bool(shown[1] ^ placebo)
                # Not by torch: its round() wakes all threads, which takes longer than the drawing.
                levels[number, row] = np.rint((scene.picture(*switched) + 1) * (top_level(8) / 2))
        grid = from_integers(torch.arange(top_level(8) + 1)).numpy()
        return (torch.from_numpy(grid[version]) for version in levels)


def _columns(subjects: list[Subject]) -> dict[str, NDArray[np.float64]]:
    rows = [subject.latents() for subject in subjects]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _tensors(labels: Labels) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    columns = labels.y, labels.task, labels.shortcut, labels.placebo
    y, task, shortcut, placebo = (torch.from_numpy(column) for column in columns)
    return y, task, shortcut, placebo


def phantom(name: str, size: int = 64, dials: Dials = DEFAULT_DIALS) -> Phantom:
    """Return a phantom by name.

    Raises:
        InputError: there is no such phantom, or it cannot be drawn at this size.
    """
    if name not in STUDIES:
        raise InputError(unknown("phantom", name, STUDIES))
    if isinstance(size, bool) or not isinstance(size, int) or not SMALLEST <= size <= LARGEST:
        raise InputError(expected("size", f"a whole number from {SMALLEST} to {LARGEST}", repr(size)))
    return Phantom(STUDIES[name], size, dials)
