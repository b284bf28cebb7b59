"""What an experiment of the paper is: a declaration, and what comes out when its kind of work is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fastdime.errors import InputError, expected, unknown
from fastdime.experiments.paper.variants import Variant

Scale = Literal["small", "full"]
Row = dict[str, Any]
Published = Mapping[str, Mapping[str, float]]  # by data set and row ("isic/dime"), then by column

# The data sets of the paper that a phantom stands for, by the word before its columns.
STANDS_FOR: Mapping[str, Mapping[str, str]] = {
    "face-smile": {"paper": "celeba", "paper_age": "celeba-age"},
    "chest-pacemaker": {"paper": "chexpert"},
    "chest-drain": {"paper": "nih"},
    "skin-ruler": {"paper": "isic"},
}
DATA_SETS = ("celeba", "celeba-age", "chexpert", "nih", "isic")


class NotForThese(InputError):
    """An experiment can be done, but not on any of the images that a user asks for."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        name: as it is typed.
        title: what it shows, in one line.
        source: where it stands in the paper.
        sizes: what differs between the scales, for example how many images; the kind of work reads it.
            `minutes` of the small one is what it takes here, roughly.
        published: the paper's numbers.
        variants: its rows, if they are methods with some settings changed.
        notes: what a reader of the table must know, whatever comes out.
        needs_images: whether it is done on images, which a user has to give at full scale.
        phantoms: those of the small scale: where the paper has one data set, what stands for it; none: all.
    """

    name: str
    title: str
    source: str
    sizes: Mapping[Scale, Mapping[str, Any]]
    published: Published = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    notes: tuple[str, ...] = ()
    needs_images: bool = True
    phantoms: tuple[str, ...] = ()

    def size(self, scale: Scale) -> Mapping[str, Any]:
        """Return the sizes of a scale."""
        if scale not in self.sizes:
            raise InputError(unknown("--scale", scale, self.sizes))
        return self.sizes[scale]

    def chosen(self, only: Sequence[str]) -> tuple[Variant, ...]:
        """Return the rows of some names; all, if there are none."""
        names = [variant.name for variant in self.variants]
        if only and not names:
            raise InputError(expected("--only", "an experiment with rows to choose from", self.name))
        for name in only:
            if name not in names:
                raise InputError(unknown("--only", name, names))
        return tuple(variant for variant in self.variants if not only or variant.name in only)

    def beside(self, source: str, row: str) -> Row:
        """Return the paper's numbers for a row of a source, as columns that go beside ours."""
        known = STANDS_FOR.get(source, {"paper": source})
        return {
            f"{word}_{column}": value
            for word, data_set in known.items()
            for column, value in self.published.get(f"{data_set}/{row}", {}).items()
        }


@dataclass(frozen=True)
class Source:
    """Images that an experiment is done on, and what makes their counterfactuals.

    Attributes:
        name: of a phantom, or one of DATA_SETS.
        table: a table of the images; None = a phantom, which is drawn.
        bundle: name or folder of denoiser and guide.
        task, shortcut: columns of the table.
    """

    name: str
    table: Path | None
    bundle: str
    task: str = "task"
    shortcut: str = "shortcut"

    @property
    def exact(self) -> bool:
        """Whether the true counterfactuals are known."""
        return self.table is None


@dataclass(frozen=True)
class Plan:
    """What a user asks for.

    Attributes:
        out: folder of the experiment; the same call again goes on there.
        n: images of each source, in the place of what the scale says.
        only: rows to run; all if there are none.
    """

    scale: Scale
    sources: tuple[Source, ...]
    out: Path
    n: int | None = None
    seed: int = 0
    device: str = "cpu"
    features: str | None = None
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a plan without images, and a seed that no noise has."""
        if not self.sources:
            wanted = "a data set and its bundle (--data isic=TABLE --bundle isic=FOLDER)"
            raise InputError(expected("experiment", wanted, "none"))
        if self.seed < 0:
            raise InputError(expected("--seed", "0 or more", self.seed))


@dataclass(frozen=True)
class Outcome:
    """What came out: rows of one table, with the paper's numbers beside ours where it has them.

    Attributes:
        columns: names of the columns that are printed, in order; rows may have more.
        pictures: files that show it.
        notes: what a reader must know, for example how many images a slow method had.
        studies: folders of validation studies; their figure is drawn by `report`, which reads folders.
    """

    rows: list[Row]
    columns: tuple[str, ...]
    pictures: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    studies: tuple[Path, ...] = ()
