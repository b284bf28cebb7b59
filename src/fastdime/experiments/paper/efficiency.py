"""Table 3: what methods cost, measured in turn on the same images.

OUT/SOURCE.json    what came out for a source; times cannot be measured by halves, so a source is done or not
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fastdime.audit.pictures import Progress, Show
from fastdime.bundles import Bundle, BundleInfo, load_bundle, load_info
from fastdime.configs import read_json
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.errors import InputError, expected
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Row, Source
from fastdime.experiments.paper.published import COMPLEXITY
from fastdime.experiments.paper.sources import first_rows, read_pixels
from fastdime.experiments.paper.variants import Variant
from fastdime.experiments.speed import (
    BATCH,
    GUIDED,
    Contest,
    Drawn,
    Entry,
    Work,
    peak_memory,
    quadratic,
    race,
    warm_up,
    with_ratios,
)
from fastdime.experiments.truth import DIRECTIONS, Direction, Pairs, pairs
from fastdime.files import write_atomically
from fastdime.pipeline.options import moved

PUBLISHED_BATCH, PUBLISHED_IMAGES = 5, 1000  # of the paper's table
DATA_SET = "celeba"  # that it is about
COLUMNS = (
    "source",
    "row",
    "complexity",
    "n",
    "seconds_per_batch",
    "paper_seconds_per_batch",
    "total_seconds",
    "paper_total_seconds",
    "peak_memory_mb",
    "paper_peak_memory_mb",
    "denoiser_calls",
    "gradient_calls",
    "ratio_to_dime",
    "paper_ratio_to_dime",
)


def run_efficiency(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Measure each source, or read what was measured before."""
    sizes = experiment.size(plan.scale)
    n, few, chain = plan.n or sizes["n"], sizes["n_dime"], sizes["chain"]
    methods = [variant.method for variant in experiment.chosen(plan.only)]
    rows: list[Row] = []
    for source in plan.sources:
        config = same_chain(load_info(source.bundle), methods, chain if source.exact else None)
        contest = Contest(source.bundle, methods, n=n, n_dime=min(few, n), config=config)
        rows += [_row(found, source, experiment) for found in _kept(source, contest, plan, show)]
    fewer = [f"methods of quadratic cost have {few} images"] if few < n else []
    return Outcome(rows, COLUMNS, notes=(*experiment.notes, *fewer))


def _kept(source: Source, contest: Contest, plan: Plan, show: Show) -> list[Row]:
    """Measure, unless the same was measured already."""
    path = plan.out / f"{source.name}.json"
    asked = {
        "bundle": source.bundle,
        "table": None if source.table is None else str(source.table),
        "methods": list(contest.methods),
        "n": contest.n,
        "n_dime": contest.n_dime,
        "chain": dict(contest.config),
        "seed": plan.seed,
        "device": plan.device,
    }
    if path.is_file():
        old = read_json(path)
        if old.get("asked") != asked:
            wanted, got = (
                "what the same command measured",
                "another --seed, other images, models, methods or settings",
            )
            raise InputError(expected(str(path), wanted, got, "choose another --out"))
        return list(old["rows"])
    with show(f"denoiser calls, {source.name}") as progress:
        rows = measured(source, contest, plan, progress)
    write_atomically(path, f"{json.dumps({'asked': asked, 'rows': rows}, indent=1)}\n".encode())
    return rows


def measured(source: Source, contest: Contest, plan: Plan, progress: Progress) -> list[Row]:
    """Let the methods take turns on each batch; returns time, calls and memory of each."""
    bundle = load_bundle(source.bundle)
    entries = [_entry(method, contest, bundle, plan) for method in contest.methods]
    drawn = {way: _pairs(source, bundle, contest.n // 2, way, plan.device) for way in DIRECTIONS}
    peaks = {entry.method: _warm_up(entry, drawn, plan.device) for entry in entries}
    own_process = source.exact and plan.device == "cpu"
    work = Work(entries, BATCH if own_process else 0, progress)
    race(entries, drawn, work)
    for entry in entries if own_process else ():
        peaks[entry.method] = peak_memory(bundle, source.name, entry)
        work.finish(entry, BATCH)
    return with_ratios(
        [
            entry.costs() | {"peak_memory_mb": peaks[entry.method], "threads": torch.get_num_threads()}
            for entry in entries
        ]
    )


def same_chain(
    info: BundleInfo, methods: Sequence[str], published: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return changes by which all methods that the bundle has settings for run the same chain.

    Args:
        published: a chain from noise, run once with the bundle's first strength; None = the chain of the
            bundle's FastDiME.
    """
    usual = Variant("fastdime", "fastdime").settings(info)
    assert isinstance(usual, GuidedSettings)
    chain: dict[str, Any] = {"steps": usual.steps, "tau": usual.tau}
    if published is not None:
        chain = {**published, "inversion": False, "scales": list(usual.scales[:1])}
    return {method: chain for method in methods if method in GUIDED and method in info.settings}


def _entry(method: str, contest: Contest, bundle: Bundle, plan: Plan) -> Entry:
    settings = contest.settings(bundle, method)
    explainer = replace(Explainer.from_bundle(bundle, method), settings=settings, seed=plan.seed)
    n = contest.n_dime if quadratic(settings) else contest.n
    return Entry(method, moved(explainer, plan.device), n)


def _pairs(source: Source, bundle: Bundle, n: int, way: Direction, device: str) -> Pairs:
    """Return images to remove the shortcut from, or to add it to; of a table nobody knows the truth."""
    if source.table is None:
        drawn = pairs(source.name, n, way)
        return Pairs(drawn.x.to(device), drawn.truth.to(device), drawn.target)
    table = first_rows(source, source.table, way, n)
    if len(table) < n:
        wanted = f"{n} images with {source.shortcut} = {int(way == 'remove')}"
        raise InputError(expected(str(source.table), wanted, len(table), "give a smaller --n"))
    x = read_pixels(table, bundle).to(device)
    return Pairs(x, x, int(way == "add"))


def _warm_up(entry: Entry, drawn: Drawn, device: str) -> float | None:
    """Let a method work once; returns its peak memory on a GPU, where it can be asked for."""
    if not device.startswith("cuda"):
        warm_up(entry, drawn)
        return None
    torch.cuda.reset_peak_memory_stats(device)
    warm_up(entry, drawn)
    return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)


def _row(found: Row, source: Source, experiment: Experiment) -> Row:
    method, seconds = found["method"], found["seconds_per_image"]
    told = {
        "source": source.name,
        "row": method,
        "complexity": COMPLEXITY.get(method),
        "seconds_per_batch": round(PUBLISHED_BATCH * seconds, 4),
        "total_seconds": round(PUBLISHED_IMAGES * seconds),
    }
    return {**found, **told, **_paper(method, experiment)}


def _paper(method: str, experiment: Experiment) -> Row:
    """Return the numbers of the paper, and how many times faster than DiME that makes a method."""
    row = experiment.beside(DATA_SET, method)
    if row:
        dime = experiment.published[f"{DATA_SET}/dime"]["total_seconds"]
        row["paper_ratio_to_dime"] = round(dime / row["paper_total_seconds"], 2)
    return row
