"""A phantom on disk: images, their table, and the truth about each of them.

OUT/dataset.json       what was asked for; a folder is continued only with the same settings
OUT/images/ID.png      the images
OUT/truth/other/       the same subjects with the shortcut added or removed
OUT/truth/region/      where the two differ
OUT/truth/placebo/     the same subjects with the placebo added or removed
OUT/table.csv          id, path, labels, split and latents; written last, so it tells that the set is complete
"""

import csv
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdime.data import io
from fastdime.data.phantoms.design import Dials, check_seed, parse_k, split_of
from fastdime.data.phantoms.phantom import DEFAULT_DIALS, Batch, Images, Phantom, phantom
from fastdime.errors import DataError, InputError, expected, unknown
from fastdime.files import not_writable, write_atomically

SPLITS: Mapping[str, float] = {"train": 0.7, "val": 0.1, "test": 0.2}
CHUNK = 16  # images drawn at once
MOST = 10**6  # what the digits of an id can count
ANOTHER = "choose another folder"
OTHER, REGION, PLACEBO = "other", "region", "placebo"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PhantomSet:
    """What to write.

    Attributes:
        n: number of images.
        k: as for `Phantom.render`.
        splits: share of each part of the set; they add up to 1.
        truth: write the exact counterfactuals too; without them a set for training takes a third of the time.
    """

    name: str
    n: int
    k: str | float | None = 50
    seed: int = 0
    size: int = 64
    dials: Dials = DEFAULT_DIALS
    splits: Mapping[str, float] = field(default_factory=lambda: dict(SPLITS))
    truth: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be written."""
        if isinstance(self.n, bool) or not isinstance(self.n, int) or not 1 <= self.n <= MOST:
            raise InputError(expected("n", f"a whole number of images from 1 to {MOST}", repr(self.n)))
        for name in self.splits:
            if name not in SPLITS:
                raise InputError(unknown("splits", name, SPLITS))
        shares = list(self.splits.values())
        if not all(share > 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-9):
            raise InputError(expected("splits", "shares above 0 that add up to 1", dict(self.splits)))
        # Kept in one form, so that equal sets have equal settings.
        object.__setattr__(self, "k", parse_k(self.k))
        object.__setattr__(self, "seed", check_seed(self.seed))
        self.phantom()

    def phantom(self) -> Phantom:
        """Return the phantom that draws this set."""
        return phantom(self.name, self.size, self.dials)

    def image_id(self, index: int) -> str:
        """Return the name of an image; it differs between sets of different seeds."""
        return f"{self.seed:04d}-{index:06d}"

    def config(self) -> dict[str, Any]:
        """Return what dataset.json holds."""
        study = self.phantom().study
        told = {
            "phantom": self.name,
            "task": study.task,
            "task_latent": study.task_latent,
            "shortcut": study.shortcut,
            "placebo": study.placebo,
            "n": self.n,
            "k": self.k,
            "seed": self.seed,
            "size": self.size,
            "splits": dict(self.splits),
            "dials": self.dials.model_dump(),
        }
        return told if self.truth else told | {"truth": False}


def write_phantom(out: str | Path, wanted: PhantomSet, progress: Progress | None = None) -> Path:
    """Write a set; interrupted and called again, it goes on and ends with the same bytes.

    Returns:
        The path of the table.

    Raises:
        InputError: the folder holds something else, or cannot be written.
    """
    folder = Path(out)
    _settle(folder, wanted.config())
    drawn, done = wanted.phantom(), 0
    for indices in _chunks(wanted.n):
        missing = [i for i in indices if not image_path(folder, wanted.image_id(i)).exists()]
        if missing:
            draw = drawn.render if wanted.truth else drawn.images
            _write_images(folder, wanted, missing, draw(wanted.seed, missing, wanted.k))
        done += len(indices)
        if progress:
            progress(done, wanted.n)
    return _write_table(folder, wanted)


def image_path(folder: str | Path, image_id: str) -> Path:
    """Return where an image lies."""
    return Path(folder) / "images" / f"{image_id}.png"


def truth_path(folder: str | Path, kind: str, image_id: str) -> Path:
    """Return where a truth about an image lies; the kind is "other", "region" or "placebo"."""
    return Path(folder) / "truth" / kind / f"{image_id}.png"


def read_config(folder: str | Path) -> dict[str, Any]:
    """Read the dataset.json of a set.

    Raises:
        DataError: the folder is not a set.
    """
    path = Path(folder) / "dataset.json"
    remedy = "make one with: fastdime data phantom"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        got = error.strerror if isinstance(error, OSError) else "something else"
        raise DataError(expected(str(path), "the settings of a phantom set", got, remedy)) from None
    if not isinstance(content, dict) or "phantom" not in content:
        raise DataError(expected(str(path), "the settings of a phantom set", "something else", remedy))
    return content


def _settle(folder: Path, config: dict[str, Any]) -> None:
    """Make the folders, or check that they belong to the same set."""
    path = folder / "dataset.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = sorted(file.name for file in folder.iterdir() if file.name[0] != ".")
        if found and not path.exists():
            wanted = "an empty folder or a phantom set"
            raise InputError(expected(str(folder), wanted, f"one with {found[0]!r}", ANOTHER))
        if found:
            _check_same(folder, config)
        else:
            write_atomically(path, (json.dumps(config, indent=2) + "\n").encode())
        kinds = (OTHER, REGION, PLACEBO) if config.get("truth", True) else ()
        for part in ("images", *(f"truth/{kind}" for kind in kinds)):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for rest in folder.rglob(".*.tmp"):  # of a writer that was killed
            rest.unlink()
    except OSError as error:
        raise not_writable(folder, error) from None


def _check_same(folder: Path, config: dict[str, Any]) -> None:
    old = read_config(folder)
    for name in {**config, **old}:
        if old.get(name) != config.get(name):
            place = f"{folder}: {name} of the set that is there"
            raise InputError(expected(place, config.get(name), old.get(name), ANOTHER))


def _chunks(n: int) -> Iterator[range]:
    for first in range(0, n, CHUNK):
        yield range(first, min(first + CHUNK, n))


def _write_images(folder: Path, wanted: PhantomSet, indices: list[int], batch: Images) -> None:
    # Not durable: a file is whole or not there, and waiting for the disk would take longer than drawing.
    for row, index in enumerate(indices):
        name = wanted.image_id(index)
        if isinstance(batch, Batch):
            io.write_image(truth_path(folder, OTHER, name), batch.other[row], durable=False)
            io.write_image(truth_path(folder, PLACEBO, name), batch.placebo_other[row], durable=False)
            io.write_mask(truth_path(folder, REGION, name), batch.region[row], durable=False)
        # Last: it tells that the others are there.
        io.write_image(image_path(folder, name), batch.x[row], durable=False)


def _write_table(folder: Path, wanted: PhantomSet) -> Path:
    path, temporary = folder / "table.csv", folder / f".table-{os.getpid()}.tmp"
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for row in _rows(wanted):
                writer.writerow(row)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise not_writable(path, error) from None
    return path


def _rows(wanted: PhantomSet) -> Iterator[list[Any]]:
    """Yield the header and the rows of the table, a few images at a time."""
    drawn = wanted.phantom()
    for indices in _chunks(wanted.n):
        labels = drawn.labels(wanted.seed, indices, wanted.k)
        latents = drawn.latents(wanted.seed, indices)
        if indices.start == 0:
            yield ["id", "path", "task", "shortcut", "placebo", "split", "true_task", *latents]
        for row, index in enumerate(indices):
            name = wanted.image_id(index)
            shown = labels.task[row], labels.shortcut[row], labels.placebo[row]
            place = split_of(index, wanted.splits)
            numbers = (f"{column[row]:.9g}" for column in latents.values())
            yield [name, f"images/{name}.png", *shown, place, labels.y[row], *numbers]
