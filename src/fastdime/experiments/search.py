"""Find the strength and the start level for images of one's own: a small search over a pilot set.

Every combination is a run folder of `explain`, so a search that was stopped goes on, and its pictures can be
looked at. The rule of choice: of the combinations whose share of flipped images is within SLACK of the best,
the one that changes the images least; of equals, the one with fewer denoiser calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from fastdime.bundles import load_bundle, shipped
from fastdime.counterfactuals.checks import check_features, check_weights
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import check_chain, settings_for
from fastdime.counterfactuals.settings import Settings
from fastdime.data.table import Table
from fastdime.errors import DataError, InputError, expected, unknown
from fastdime.experiments.grids import Grid, changed, check_grid, combinations, default_grid, spelled
from fastdime.experiments.truth import further
from fastdime.functions import names_function
from fastdime.pipeline.explain import Progress, explain, open_data
from fastdime.pipeline.inputs import Failure, open_inputs
from fastdime.pipeline.models import Sources
from fastdime.pipeline.options import RunOptions, device_of, network_of
from fastdime.pipeline.pairs import pairs_of_run
from fastdime.pipeline.summary import summarise
from fastdime.scoring.verdicts import Asked, open_classifier
from fastdime.types import Classifier
from fastdime.weights import weights_hash

SLACK = 0.05  # of the share of flipped images
FEW = 0.5  # a smaller share is no success
BATCH = 32
SHORTCUT = "shortcut"  # the oracle of a bundle
BY_ORACLE, BY_GUIDE = "oracle_flip", "guide_flip"
Row = dict[str, Any]


@dataclass(frozen=True)
class Tuned:
    """What was tried, and what was chosen.

    Attributes:
        settings: the chosen ones, complete.
        chosen: the row of the chosen combination.
        rows: one for each combination: its `settings` and its scores, or why it was `refused`.
        failed: reasons for images that cannot be used.
        warnings: what to keep in mind about the choice.
    """

    settings: Settings
    chosen: Row
    rows: list[Row]
    failed: tuple[str, ...]
    warnings: tuple[str, ...]


def tune_settings(
    data: str | Path | Table,
    explainer: Explainer,
    folder: str | Path,
    grid: Grid | None = None,
    *,
    oracle: Classifier | None = None,
    options: RunOptions | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Try combinations of settings on a pilot set of images and choose one; called again, it goes on.

    Args:
        data: pilot images, as for `explain`; they should not be among those that are reported on.
        explainer: its settings are what the grid changes.
        folder: for the pictures, in a run folder for each combination.
        grid: values to try by the name of the setting; strengths and start levels around the present ones
            unless given.
        oracle: another classifier of the same classes, which says whether an image flipped; the guide alone
            says so unless given, and a guide can be fooled.
        progress: called with (images done, images of all combinations).
    """
    options, present = options or RunOptions(), explainer.resolved
    grid = default_grid(present) if grid is None else grid
    check_grid(grid, present)
    pilot = _open_pilot(data, options, explainer)
    judge = None if oracle is None else _open_judge(oracle, explainer, pilot)
    tries = [(values, _fitting(explainer, values, pilot.classes)) for values in combinations(grid)]
    work = sum(isinstance(fit, Explainer) for _, fit in tries) * pilot.images
    rows: list[Row] = []
    for values, fit in tries:
        if isinstance(fit, str):
            rows.append({"settings": values, "refused": fit})
            continue
        done = pilot.images * sum("refused" not in row for row in rows)
        show = None if progress is None else partial(further, progress, done, work)
        run = Path(folder) / name_of(values)
        explain(data, fit, run, options, progress=show)
        rows.append({"settings": values, **_scores(run, judge, pilot), "run": str(run)})
    by = BY_GUIDE if oracle is None else BY_ORACLE
    chosen = choose(rows, by)
    warnings = tuple(_warnings(chosen, grid, by))
    return Tuned(changed(present, chosen["settings"]), chosen, rows, pilot.failed, warnings)


def open_oracle(name: str | None, sources: Sources) -> tuple[str, Classifier] | None:
    """Open an oracle of the bundle or any classifier, and say what it is called.

    Without a name it is the bundle's own oracle of the shortcut, if the guide is the bundle's too.
    """
    bundle = None if sources.bundle is None else load_bundle(sources.bundle)
    if name is None and bundle is not None and sources.classifier is None and SHORTCUT in bundle.oracles:
        name = SHORTCUT
    if name is None:
        return None
    if bundle is not None and name in bundle.oracles:
        return f"{bundle.name}/{name}", bundle.oracle(name)
    if bundle is not None and not (Path(name).exists() or name in shipped() or names_function(name)):
        where = f"--oracle: no such file; oracle of bundle {bundle.name}"
        raise InputError(unknown(where, name, bundle.oracles))
    return name, open_classifier(name)


def choose(rows: Sequence[Row], by: str = BY_ORACLE) -> Row:
    """Choose by the rule of this module.

    >>> tried = [(0.5, 0.01, 20), (0.97, 0.03, 40), (0.99, 0.03, 60), (1.0, 0.04, 20)]
    >>> choose([dict(zip(["oracle_flip", "mean_change", "denoiser_calls"], row)) for row in tried])
    {'oracle_flip': 0.97, 'mean_change': 0.03, 'denoiser_calls': 40}
    """
    made = [row for row in rows if row.get("mean_change") is not None]
    if not made:
        reasons = [row["refused"] for row in rows if "refused" in row]
        got = f"none, for {reasons[0]}" if reasons else "numbers without bound from each"
        raise InputError(expected("grid", "a combination that gives pictures", got, "try other values"))
    best = max(row[by] for row in made)
    near = [row for row in made if row[by] >= best - SLACK - 1e-9]
    return min(near, key=lambda row: (row["mean_change"], row["denoiser_calls"]))


def name_of(values: Mapping[str, Any]) -> str:
    """Name the run folder of a combination, whatever the order of the grid.

    >>> name_of({"tau": 30, "scales": [10.0, 20.0]})
    'scales-10-20_tau-30'
    """
    return "_".join(f"{name}-{spelled(values[name]).replace(':', '-')}" for name in sorted(values))


@dataclass(frozen=True)
class _Pilot:
    images: int
    classes: int
    failed: tuple[str, ...]
    first: Tensor

    @property
    def usable(self) -> int:
        return self.images - len(self.failed)


def _open_pilot(data: str | Path | Table, options: RunOptions, explainer: Explainer) -> _Pilot:
    """Look at every image before the first is explained."""
    table, folder = open_data(data, options)
    # Whether settings fit the denoiser is said of each combination; these always do.
    shortest = replace(explainer, settings=settings_for("fastdime", steps=None, tau=1))
    inputs = open_inputs(table, options, folder, shortest)
    failed, first = [], None
    for place in range(len(table)):
        (entry,) = inputs.batch([place])
        if isinstance(entry, Failure):
            failed.append(entry.error)
        elif first is None:
            first = entry.x
    if first is None:
        source = table.source if isinstance(data, Table) else data
        wanted = "one or more that can be used"
        raise DataError(expected(f"images of {source}", wanted, "none", "; ".join(failed[:1])))
    return _Pilot(len(table), inputs.classes, tuple(failed), first)


def _open_judge(oracle: Classifier, explainer: Explainer, pilot: _Pilot) -> Asked:
    """Ask the oracle about one image, so that what does not fit is told before the work."""
    guides, judges = (network_of(each) for each in (explainer.classifier, oracle))
    alike = guides is not None and judges is not None and weights_hash(guides) == weights_hash(judges)
    if alike or oracle == explainer.classifier:
        remedy = "name another, or none to be judged by the guide alone"
        raise InputError(expected("oracle", "another network than the guide", "the guide itself", remedy))
    judge = Asked(oracle, "oracle", device=str(device_of(explainer)))
    found = judge.probabilities(pilot.first[None]).shape[1]
    if found != pilot.classes:
        raise InputError(expected("oracle", f"{pilot.classes} classes, as the guide has", found))
    return judge


def _fitting(explainer: Explainer, values: Mapping[str, Any], classes: int) -> Explainer | str:
    """Return an explainer with these settings, or why there is none."""
    try:
        settings = changed(explainer.resolved, values)
        check_chain(explainer.denoiser, settings)
        check_features(explainer.features, settings)
        check_weights(settings, classes)
    except InputError as error:
        return str(error)
    return replace(explainer, settings=settings)


def _scores(run: Path, judge: Asked | None, pilot: _Pilot) -> Row:
    """Score a run; an image whose guidance ran away has no picture, and has not flipped."""
    summary = summarise(run)
    flips, area = _looked_at(run, judge) if summary.images else (0, None)
    guide_flips = summary.images * (summary.flip_rate or 0)
    return {
        "images": pilot.usable,
        "diverged": pilot.usable - summary.images,
        BY_ORACLE: None if judge is None else round(flips / pilot.usable, 4),
        BY_GUIDE: round(guide_flips / pilot.usable, 4),
        "mean_change": _rounded(summary.mean_change),
        "changed_area": _rounded(summary.changed_area),
        "mask_area": _rounded(area),
        "denoiser_calls": _rounded(summary.denoiser_calls),
        "seconds_per_image": _rounded(summary.seconds_per_image),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _looked_at(run: Path, judge: Asked | None) -> tuple[int, float]:
    """Count the images that the oracle puts into their target class, and measure the masks."""
    pairs, flips, area = pairs_of_run(run), 0, 0.0
    asked = None if judge is None else replace(judge, targets=[record["target"] for record in pairs.records])
    failed: list[str] = []
    for batch in pairs.batches(BATCH, failed):
        flips += 0 if asked is None else int(asked(batch).valid.sum())
        area += 0.0 if batch.mask is None else float(batch.mask.float().mean((1, 2, 3)).sum())
    if failed:
        raise DataError(failed[0])
    return flips, area / len(pairs)


def _warnings(chosen: Row, grid: Grid, by: str) -> Iterator[str]:
    if by == BY_GUIDE:
        yield "no oracle: images count as flipped if the guide says so, and a guide can be fooled"
    if chosen[by] < FEW:
        yield f"the chosen settings flip only {chosen[by]:.0%} of the images; try stronger ones with --grid"
        return
    edges = [
        f"{name}={spelled(value)}"
        for name, value in chosen["settings"].items()
        if _at_edge(value, grid[name])
    ]
    if edges:
        yield f"at the edge of what was tried: {', '.join(edges)}; look beyond it with --grid"


def _at_edge(value: Any, values: Sequence[Any]) -> bool:
    """Tell whether a number, or a ladder of one rung, is the smallest or largest of several."""
    numbers = [each[0] if isinstance(each, list | tuple) and len(each) == 1 else each for each in values]
    if len(numbers) < 2 or not all(type(number) in (int, float) for number in numbers):
        return False
    return numbers[list(values).index(value)] in (min(numbers), max(numbers))
