"""Experiments that are methods and settings by sources: a run folder for each, scored by every metric.

OUT/data/SOURCE    a phantom that was drawn
OUT/SOURCE/ROW     a run folder, which `fastdime score`, `compare` and `report` read
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fastdime.audit.pictures import Progress, Show
from fastdime.bundles import Bundle, load_bundle, load_info
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import cost
from fastdime.counterfactuals.settings import Settings
from fastdime.data.phantoms.write import PhantomSet, write_phantom
from fastdime.data.table import Table, read_table
from fastdime.experiments.grids import spelled
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Row, Source
from fastdime.experiments.paper.grid_scores import FEWEST, TOO_FEW, columns_of, scores_of
from fastdime.experiments.paper.sources import read_images
from fastdime.experiments.paper.variants import Variant
from fastdime.experiments.speed import quadratic
from fastdime.features.registry import open_features
from fastdime.pipeline.explain import explain
from fastdime.pipeline.options import RunOptions, moved

SEED = 34_000  # of subjects that nothing was trained, tuned or scored on otherwise
DRAWN = 1000  # images of a phantom where an experiment takes as many as there are


@dataclass(frozen=True)
class Images:
    """The images of a source, and the table that has their labels."""

    source: Source
    labels: Path
    table: Table


@dataclass(frozen=True)
class Cell:
    """One run: a variant on images of a source."""

    images: Images
    variant: Variant
    settings: Settings
    n: int

    @property
    def calls(self) -> int:
        """Denoiser calls of one attempt on one image: about what it will take."""
        return cost(self.settings)[0]

    def folder(self, out: Path) -> Path:
        """Return where its run is."""
        return out / self.images.source.name / self.variant.name.replace(" ", "-")


def run_grid(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Make and score all runs; called again, it goes on where it stopped."""
    sizes, variants = experiment.size(plan.scale), experiment.chosen(plan.only)
    n = plan.n or sizes["n"]
    if plan.features is not None:
        open_features(plan.features, plan.device)  # what is wrong is told now, not after hours
    images = [_images(source, n, plan, show) for source in plan.sources]
    cells = [_cell(each, variant, sizes["n_dime"]) for each in images for variant in variants]
    work = Work(sum(cell.calls * cell.n for cell in cells))
    rows: list[Row] = []
    with show("denoiser calls") as progress:
        for source in plan.sources:
            bundle = load_bundle(source.bundle)
            for cell in (cell for cell in cells if cell.images.source is source):
                make(cell, bundle, plan, work.part(cell, progress))
                rows.append(_row(cell, bundle, plan) | experiment.beside(source.name, cell.variant.name))
    return Outcome(rows, columns_of(rows), notes=(*experiment.notes, *_notes(cells, rows)))


@dataclass
class Work:
    """Progress of the whole in denoiser calls: an image of one method costs as much as many of another."""

    all: int
    done: int = 0

    def part(self, cell: Cell, progress: Progress) -> Progress:
        """Return what a run is to call with (images done, images)."""
        before = self.done
        self.done += cell.calls * cell.n
        return lambda done, of: progress(before + done * cell.calls, self.all)


def _images(source: Source, n: int | None, plan: Plan, show: Show) -> Images:
    if source.table is not None:
        table = read_images(source, source.table)
        return Images(source, source.table, table if n is None else table.head(n))
    count, size = n or DRAWN, load_info(source.bundle).size
    wanted = PhantomSet(source.name, count, None, SEED, size)
    with show(f"images of {source.name}") as progress:
        path = write_phantom(plan.out / "data" / source.name, wanted, progress)
    return Images(source, path, read_table(path))


def _cell(images: Images, variant: Variant, few: int | None) -> Cell:
    settings = variant.settings(load_info(images.source.bundle))
    n = len(images.table)
    return Cell(images, variant, settings, min(few or n, n) if quadratic(settings) else n)


def make(cell: Cell, bundle: Bundle, plan: Plan, progress: Progress) -> None:
    """Make the counterfactuals of a run that are not there yet."""
    source, method = cell.images.source, cell.variant.method
    explainer = replace(Explainer.from_bundle(bundle, method), settings=cell.settings, seed=plan.seed)
    # A phantom is drawn as the bundle wants it; a user's images are brought into that form.
    options = RunOptions() if source.exact else RunOptions(size=bundle.size, convert=True)
    explain(
        cell.images.table.head(cell.n),
        moved(explainer, plan.device),
        cell.folder(plan.out),
        options,
        sources={"method": method, "denoiser": source.bundle, "classifier": source.bundle},
        progress=progress,
    )


def _row(cell: Cell, bundle: Bundle, plan: Plan) -> Row:
    source, changed = cell.images.source, cell.variant.changed(bundle.info)
    told = {
        "source": source.name,
        "row": cell.variant.name,
        "n": cell.n,
        "changed": _spelled(changed),
    }
    return told | scores_of(cell.folder(plan.out), source, cell.images.labels, bundle, plan)


def _spelled(changes: Mapping[str, object]) -> str:
    return " ".join(f"{name}={spelled(value)}" for name, value in changes.items())


def _notes(cells: list[Cell], rows: list[Row]) -> list[str]:
    """Say which runs have fewer images than others, and which numbers have too few of them."""
    said = [
        f"{cell.variant.name} has {cell.n} of the {len(cell.images.table)} images of "
        f"{cell.images.source.name}: its cost is quadratic"
        for cell in cells
        if cell.n < len(cell.images.table)
    ]
    said += [
        f"{row['failed']} of the {row['n']} images of {row['source']} could not be used in {row['row']}: "
        "see its records.jsonl"
        for row in rows
        if row["failed"]
    ]
    warnings = [row["warnings"].get("fid", "") for row in rows]
    if any(TOO_FEW in warning for warning in warnings):
        said.append(f"fid, sfid and kid are blank where there are fewer than {FEWEST} valid counterfactuals")
    if any("unreliable" in warning for warning in warnings):
        said.append(
            "fid and sfid are unreliable where there are fewer images than features; kid is not biased, but "
            "wide: see kid_low and kid_high"
        )
    return said
