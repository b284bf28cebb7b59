"""The pictures of an audit: edits and controls of every image, each made once and kept.

FOLDER/edit      run folder of `explain`: the shortcut switched
FOLDER/null      the same chain without guidance
FOLDER/reseed    the edit with another seed
FOLDER/back      edits of some edits, back again
FOLDER/placebo   placebo edits
FOLDER/truth     exact counterfactuals, for phantoms
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fastdime.audit.answers import EDIT, ORIGINAL
from fastdime.audit.placebo import placebo_edit
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.settings import GuidedSettings, Settings
from fastdime.data import io
from fastdime.data.phantoms.write import OTHER, read_config, truth_path
from fastdime.data.table import Table
from fastdime.errors import DataError, expected
from fastdime.pipeline.explain import explain
from fastdime.pipeline.options import RunOptions
from fastdime.pipeline.pairs import Pairs, pairs_of_run
from fastdime.runs import file_stem, image_path, mask_path, read_run

NULL, RESEED, PLACEBO, TRUTH = "null", "reseed", "placebo", "truth"
BACK, BACK_IMAGES = "back", 12
BATCH = 32
OTHER_SEED = 1_000_003  # added for the second seed
SHORTCUT = "shortcut"  # the column that the truth of a phantom is about
Progress = Callable[[float, int], None]
Show = Callable[[str], AbstractContextManager[Progress]]  # such as fastdime.terminal.progress_of


@contextmanager
def unseen(what: str) -> Iterator[Progress]:
    """Show no progress."""
    yield lambda done, of: None


@dataclass(frozen=True)
class Studio:
    """Makes the pictures of one shortcut.

    Attributes:
        table: images whose label of the shortcut is known.
        options: how they are read.
        controls: on how many images the null edit and the second seed are made.
        show: opens a progress display.
    """

    table: Table
    column: str
    explainer: Explainer
    sources: Mapping[str, str]
    folder: Path
    options: RunOptions
    controls: int
    show: Show

    def make(self) -> "Album":
        """Make what is missing."""
        target = f"flip:{self.column}"
        self._run(EDIT, self.table, self.explainer, target)
        check_some(self.folder / EDIT, self.column)
        some = self.table.head(self.controls) if self.controls else None
        if some is not None:
            null = replace(self.explainer, settings=unguided(self.explainer.resolved))
            self._run(NULL, some, null, target)
            again = replace(self.explainer, seed=self.explainer.seed + OTHER_SEED)
            self._run(RESEED, some, again, target)
        album = Album(self.folder, pairs_of_run(self.folder / EDIT), self.column)
        self._run(BACK, self._way_back(album), self.explainer, f"column:{self.column}")
        copy_truth(album)
        with self.show(f"{self.column}: {PLACEBO}") as progress:
            write_placebos(album, self.explainer.seed, progress)
        return album

    def _run(self, kind: str, table: Table, explainer: Explainer, target: str) -> None:
        options = self.options.model_copy(update={"target": target})
        if kind == BACK:  # its pictures are of this run's making, and fit
            options = options.model_copy(update={"size": None, "root": None})
        with self.show(f"{self.column}: {kind}") as progress:
            place = self.folder / kind
            explain(table, explainer, place, options, sources=self.sources, progress=progress)

    def _way_back(self, album: "Album") -> Table:
        """Take some edits for images, and what their originals show for the target."""
        ids = album.ids[:BACK_IMAGES]
        known = dict(zip(self.table.ids, self.table.column(self.column), strict=True))
        paths = tuple(image_path(self.folder / EDIT, name) for name in ids)
        return Table(ids, paths, {self.column: tuple(known[name] for name in ids)})


def check_some(run: Path, column: str) -> None:
    """Refuse a run without a single picture, and say what is wrong with the first image."""
    records = read_run(run)[1]
    if all("error" in record for record in records):
        wanted = "one or more that can be edited"
        raise DataError(expected(f"images of {column}", wanted, "none", f"{records[0]['error']}"))


def unguided(settings: Settings) -> Settings:
    """Return the same chain without gradients of the classifier."""
    changes: dict[str, object] = {"scales": (0.0,), "skip_if_met": False}
    if isinstance(settings, GuidedSettings) and settings.second_pass == "null":
        changes["second_pass"] = "none"  # the difference of two equal chains would show nothing
    return settings.model_copy(update=changes)


@dataclass(frozen=True)
class Album:
    """The pictures of one shortcut, by kind and id."""

    folder: Path
    pairs: Pairs
    column: str

    @property
    def ids(self) -> tuple[str, ...]:
        """Images that have an edit."""
        return self.pairs.ids

    def path(self, kind: str, row: int) -> Path:
        """Return where a picture lies, or would lie."""
        place = self.pairs.places[row]
        if kind == ORIGINAL:
            return place.original
        if kind in (PLACEBO, TRUTH):
            return self.folder / kind / f"{file_stem(place.image_id)}.png"
        return image_path(self.folder / kind, place.image_id)

    def read(self, kind: str, row: int) -> Tensor:
        """Read a picture; originals are read as the run read them."""
        if kind == ORIGINAL:
            return self.read_as_original(self.path(kind, row)).x
        return io.read(self.path(kind, row), channels=self.channels).x

    def read_as_original(self, path: Path) -> io.Picture:
        """Read a file as the run read the originals."""
        size, convert = self.pairs.size, self.pairs.convert
        return io.read(path, channels=self.channels, size=size, convert=convert)

    def mask(self, row: int) -> Tensor:
        """Read where the edit of an image was allowed to change it."""
        return io.read_mask(mask_path(self.folder / EDIT, self.ids[row]))

    @cached_property
    def channels(self) -> int:
        """Of all pictures, as the first edit has them."""
        return len(io.read(self.pairs.places[0].counterfactual).x)

    def rows_with(self, kind: str) -> list[int]:
        """List the images that have such a picture."""
        return [row for row in range(len(self.ids)) if os.path.isfile(self.path(kind, row))]

    def batches(self, kind: str, size: int = BATCH) -> Iterator[tuple[list[int], Tensor]]:
        """Yield all pictures of a kind, some at a time."""
        for rows in _chunks(self.rows_with(kind), size):
            yield rows, self.stack(kind, rows)

    def stack(self, kind: str, rows: Sequence[int]) -> Tensor:
        """Read some pictures of a kind."""
        return torch.stack([self.read(kind, row) for row in rows])


def write_placebos(album: Album, seed: int, progress: Progress) -> None:
    """Write the placebo of each edit."""
    edited = album.rows_with(EDIT)
    missing = [row for row in edited if not os.path.isfile(album.path(PLACEBO, row))]
    (album.folder / PLACEBO).mkdir(parents=True, exist_ok=True)
    for done, row in enumerate(missing, 1):
        bits = io.read(album.path(EDIT, row)).bits
        pair = album.stack(ORIGINAL, [row]), album.stack(EDIT, [row])
        io.write_image(album.path(PLACEBO, row), placebo_edit(*pair, [album.ids[row]], seed, bits)[0], bits)
        progress(done, len(missing))


def _chunks(rows: Sequence[int], size: int = BATCH) -> Iterator[list[int]]:
    return (list(rows[first : first + size]) for first in range(0, len(rows), size))


def phantom_folder(album: Album) -> Path | None:
    """Return the phantom set that the originals lie in, if its truth is about this shortcut."""
    folder = album.path(ORIGINAL, 0).parent.parent
    if album.column != SHORTCUT or not (folder / "dataset.json").is_file():
        return None
    try:
        config = read_config(folder)
    except DataError:
        return None
    return folder if config.get("truth", True) else None


def copy_truth(album: Album) -> None:
    """Keep the exact counterfactuals beside the edits."""
    folder = phantom_folder(album)
    if folder is None:
        return
    (album.folder / TRUTH).mkdir(parents=True, exist_ok=True)
    for row, name in enumerate(album.ids):
        place, source = album.path(TRUTH, row), truth_path(folder, OTHER, name)
        if source.is_file() and not place.exists():
            picture = album.read_as_original(source)
            io.write_image(place, picture.x, picture.bits)
