"""Pairs whose originals are phantoms: the exact counterfactual of each is known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdime.bundles import ORACLES, SHIPPED, load_info, shipped
from fastdime.classifiers.load import load_classifier
from fastdime.data import io
from fastdime.data.phantoms.design import Labels
from fastdime.data.phantoms.measure_attributes import MORE
from fastdime.data.phantoms.phantom import SEEN
from fastdime.data.phantoms.write import OTHER, PLACEBO, read_config, truth_path
from fastdime.data.table import Table, read_table
from fastdime.errors import DataError, InputError, expected
from fastdime.pipeline.pairs import Pairs
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.verdicts import bundle_of
from fastdime.types import Classifier

ABOUT = 0.9  # share of originals in which the class is the shortcut, for a classifier that is about it


@dataclass(frozen=True)
class PhantomFolder:
    """A phantom set on disk.

    Attributes:
        ids: of the pairs that are scored, in their order.
        comparable: whether exact counterfactuals answer what was asked; unless a user says so, that is when
            the classes of a run's classifier are those of the shortcut.
        by_target: whether the target tells which pairs ask for it; otherwise all do.
    """

    folder: Path
    config: Mapping[str, Any]
    ids: tuple[str, ...]
    comparable: bool = True
    by_target: bool = False

    @property
    def name(self) -> str:
        """Which phantom it is."""
        return str(self.config["phantom"])

    @cached_property
    def table(self) -> Table:
        """All images of the set, with their labels and latents."""
        return read_table(self.folder / "table.csv")

    @property
    def has_attributes(self) -> bool:
        """Whether more than task, shortcut and placebo can be measured in it."""
        return self.name in MORE

    @cached_property
    def latents(self) -> dict[str, NDArray[np.float64]]:
        """All numbers of the table, by column."""
        return {name: np.array(values) for name, values in self.table.labels.items()}

    @property
    def labels(self) -> Labels:
        """The labels of all images of the set."""
        names = ("true_task", "task", "shortcut", "placebo")
        return Labels(*(self.latents[name].astype(np.int64) for name in names))

    @cached_property
    def shortcut(self) -> Tensor:
        """Whether each pair's original shows the shortcut."""
        return self._column("shortcut")

    @cached_property
    def placebo(self) -> Tensor:
        """Whether each pair's original shows the placebo."""
        return self._column("placebo")

    def others(self, rows: list[int], x: Tensor) -> Tensor:
        """Read the exact counterfactuals of some pairs, whose originals are x."""
        return self._read(OTHER, rows, x)

    def placebo_regions(self, rows: list[int], x: Tensor) -> Tensor:
        """Return where the placebo shows in some originals."""
        return (x - self._read(PLACEBO, rows, x)).abs().amax(1, keepdim=True) > SEEN

    def _column(self, name: str) -> Tensor:
        known = dict(zip(self.table.ids, self.table.column(name), strict=True))
        missing = [image_id for image_id in self.ids if image_id not in known]
        if missing:
            wanted = "a row for each pair"
            raise DataError(expected(str(self.folder / "table.csv"), wanted, f"none for {missing[0]!r}"))
        return torch.tensor([known[image_id] for image_id in self.ids])

    def _read(self, kind: str, rows: list[int], x: Tensor) -> Tensor:
        found = torch.stack([io.read(truth_path(self.folder, kind, self.ids[row])).x for row in rows])
        if found.shape != x.shape:
            wanted, got = (" x ".join(map(str, images.shape[1:])) for images in (found, x))
            where = f"pairs to compare with {self.folder}"
            raise DataError(expected(where, f"images of {wanted} (channels, height, width)", got))
        return found


def find_phantom(pairs: Pairs, request: ScoreRequest) -> PhantomFolder | None:
    """Return the phantom set that a request names, or the one that the originals lie in."""
    if request.truth is not None:
        config = read_config(request.truth)
        if not config.get("truth", True):
            raise InputError(
                expected(str(request.truth), "a phantom set with its truth", "one without", "make it again")
            )
        return _matched(PhantomFolder(request.truth, config, pairs.ids), pairs, named=True)
    folder = pairs.places[0].original.parent.parent
    if not (folder / "dataset.json").is_file():
        return None
    try:
        config = read_config(folder)
    except DataError:
        return None
    if not config.get("truth", True):
        return None
    return _matched(PhantomFolder(folder, config, pairs.ids), pairs, named=False)


def _matched(phantom: PhantomFolder, pairs: Pairs, named: bool) -> PhantomFolder:
    """Settle whether the shortcut was to be switched: what the classifier says of originals tells."""
    if not pairs.records:
        return phantom
    says = torch.tensor([record["predicted"] for record in pairs.records])
    about = float((says == phantom.shortcut).float().mean()) >= ABOUT
    return replace(phantom, comparable=about or named, by_target=about)


def open_oracle(phantom: str, oracle: str, pairs: Pairs) -> tuple[Classifier, str]:
    """Open an oracle for a phantom: that of the run's own bundle, or of the one that comes with fastdime.

    Returns:
        It, and its name.
    """
    folders = {phantom: SHIPPED / phantom}
    if (own := bundle_of(pairs)) is not None and load_info(own).name == phantom:
        folders = {str(own): own, **folders}
    for bundle, folder in folders.items():
        if (place := folder / ORACLES / oracle).is_dir():
            return load_classifier(place), f"{bundle}/{oracle}"
    wanted = f"those of the run's bundle or of one that comes with fastdime ({', '.join(shipped())})"
    remedy = "score the run from where it was made, so that its bundle is found" if pairs.records else ""
    raise InputError(expected("oracles", wanted, f"no {oracle!r} for {phantom}", remedy))
