"""Commands of `fastdime paper`: the tables and figures of the paper, at the size that a machine can do."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdime.cli_options import Device, Json, Seed
from fastdime.errors import FastdimeError, InputError, expected, unknown
from fastdime.files import not_writable
from fastdime.terminal import interrupt_later, print_rows, progress_of

if TYPE_CHECKING:
    from fastdime.audit.pictures import Show
    from fastdime.experiments.paper.experiment import Outcome, Plan, Scale

app = typer.Typer(help="Run the paper's experiments, with its numbers beside.")
Named = list[str] | None
TEXTS = ("source", "row", "changed", "complexity", "method", "direction")
ALL, SOME_FAILED = "all", 3


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """List the experiments, where they are in the paper, and minutes that the small scale takes, roughly."""
    from fastdime.experiments.paper.table import listed

    rows = listed()
    if as_json:
        print(json.dumps({"experiments": rows}))
    else:
        print_rows(rows, tuple(rows[0]), left=("experiment", "in_the_paper", "title"))


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="See `fastdime paper list`; or all.")],
    out: Annotated[Path, typer.Option(help="Results go to OUT/NAME; run the same command again to go on.")],
    scale: Annotated[str, typer.Option(help="small, or full: real data and a GPU.")] = "small",
    phantom: Annotated[Named, typer.Option(help="May be given again. All at the small scale.")] = None,
    data: Annotated[Named, typer.Option(help="NAME=TABLE: celeba, celeba-age, chexpert, nih, isic.")] = None,
    bundle: Annotated[Named, typer.Option(help="NAME=FOLDER: denoiser and guide of a data set.")] = None,
    task: Annotated[Named, typer.Option(help="NAME=COLUMN of the task, if not `task`.")] = None,
    shortcut: Annotated[Named, typer.Option(help="NAME=COLUMN of the shortcut, if not `shortcut`.")] = None,
    features: Annotated[
        str | None, typer.Option(help="Network of fid and the like: see `fastdime score --list`.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Rows of a table to run, with commas between, e.g. fastdime,turbo.")
    ] = None,
    n: Annotated[int | None, typer.Option(min=1, help="Images of each source.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Run an experiment of the paper, or all."""
    with interrupt_later():
        from fastdime.experiments.paper.catalogue import EXPERIMENTS, experiment
        from fastdime.experiments.paper.experiment import Plan
        from fastdime.experiments.paper.sources import Given, parse_named, sources_of
        from fastdime.experiments.paper.table import TABLE, told
        from fastdime.pipeline.models import chosen_device

    options = {"--data": data, "--bundle": bundle, "--task": task, "--shortcut": shortcut}
    named = [parse_named(option, texts or ()) for option, texts in options.items()]
    size, given = _scale(scale), Given(tuple(phantom or ()), *named)
    rows = () if only is None else tuple(only.split(","))
    if name == ALL and rows:
        raise InputError(
            expected("--only", "one experiment, because each has its own rows", ALL, "leave --only out")
        )
    plans = {}
    for each in map(experiment, EXPERIMENTS if name == ALL else [name]):
        sources = sources_of(each, size, given)
        each.chosen(rows)
        plans[each.name] = Plan(size, sources, out, n, seed, chosen_device(device), features, rows)
    if name == ALL:
        _run_all(plans, out, as_json)
        return
    outcome = _outcome(name, plans[name], progress_of)
    print(json.dumps(told(name, plans[name], outcome))) if as_json else _print(outcome, out / name / TABLE)


def _scale(text: str) -> "Scale":
    scales: tuple[Scale, ...] = ("small", "full")
    if text not in scales:
        raise InputError(unknown("--scale", text, scales))
    return scales[scales.index(text)]


def _outcome(name: str, plan: "Plan", show: "Show") -> "Outcome":
    """Do an experiment, and write down what came out."""
    from fastdime.experiments.paper.table import run_experiment, write_table

    outcome = _with_figures(run_experiment(name, plan, show))
    write_table(name, plan, outcome)
    return outcome


def _run_all(plans: Mapping[str, "Plan"], out: Path, as_json: bool) -> None:
    """Do one experiment after the other; what one of them cannot do is told at the end."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(out, error) from error
    found: list[dict[str, Any]] = []
    for place, (name, plan) in enumerate(plans.items(), 1):
        where, began = f"{place} of {len(plans)}, {name}", time.monotonic()
        print(where, file=sys.stderr, flush=True)
        line = _line(name, plan, where)
        found.append(line | {"minutes": round((time.monotonic() - began) / 60, 1)})
    print(json.dumps({"experiments": found})) if as_json else _print_all(found, out)
    failed = [line for line in found if "error" in line]
    for line in failed:
        print(f"fastdime: {line['experiment']} failed: {line['error']}", file=sys.stderr)
    if failed:
        raise typer.Exit(SOME_FAILED)


def _line(name: str, plan: "Plan", where: str) -> dict[str, Any]:
    """Do an experiment; returns what came out, or why nothing did."""
    from fastdime.experiments.paper.experiment import NotForThese
    from fastdime.experiments.paper.table import told

    try:
        return told(name, plan, _outcome(name, plan, lambda what: progress_of(f"{where}: {what}")))
    except NotForThese as reason:
        return {"experiment": name, "left_out": str(reason)}
    except FastdimeError as error:
        return {"experiment": name, "error": str(error)}


def _print_all(found: list[dict[str, Any]], out: Path) -> None:
    from fastdime.experiments.paper.table import TABLE

    paths = [out / line["experiment"] / TABLE if "rows" in line else None for line in found]
    rows = [line | {"path": path} for line, path in zip(found, paths, strict=True)]
    print_rows(rows, ("experiment", "minutes", "path"), left=("experiment", "path"))
    for line in found:
        if "left_out" in line:
            print(f"Left out: {line['left_out']}.")


def _with_figures(outcome: "Outcome") -> "Outcome":
    """Draw what experiments leave to the report: the figure of each validation study."""
    from fastdime.configs import read_json
    from fastdime.report.drop import write_drop
    from fastdime.validation.validate import RESULT

    drawn = [
        write_drop(read_json(folder / RESULT)["models"], folder / "drop.svg") for folder in outcome.studies
    ]
    return replace(outcome, pictures=(*outcome.pictures, *drawn))


def _print(outcome: "Outcome", path: Path) -> None:
    print_rows(outcome.rows, outcome.columns, left=TEXTS)
    for note in outcome.notes:
        print(f"Note: {note}{'' if note.endswith('.') else '.'}")
    for picture in outcome.pictures:
        print(f"Picture: {picture}")
    print(f"\nEverything is in {path.parent}, all numbers in {path}.")
