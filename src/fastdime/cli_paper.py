"""Commands of `fastdime paper`: the tables and figures of the paper, at the size that a machine can do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastdime.cli_options import Device, Json, Seed
from fastdime.errors import InputError, unknown
from fastdime.terminal import interrupt_later, print_rows, progress_of

if TYPE_CHECKING:
    from fastdime.experiments.paper.experiment import Outcome, Scale

app = typer.Typer(help="Run the paper's experiments, with its numbers beside.")
Named = list[str] | None
TEXTS = ("source", "row", "changed", "complexity", "method", "direction")


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
    name: Annotated[str, typer.Argument(help="See `fastdime paper list`.")],
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
        str, typer.Option(help="Rows of a table to run, with commas between, e.g. fastdime,turbo.")
    ] = "",
    n: Annotated[int | None, typer.Option(min=1, help="Images of each source.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Run an experiment of the paper."""
    with interrupt_later():
        from fastdime.experiments.paper.catalogue import experiment
        from fastdime.experiments.paper.experiment import Plan
        from fastdime.experiments.paper.sources import Given, parse_named, sources_of
        from fastdime.experiments.paper.table import run_experiment, told, write_table
        from fastdime.pipeline.models import chosen_device

    options = {"--data": data, "--bundle": bundle, "--task": task, "--shortcut": shortcut}
    named = [parse_named(option, texts or ()) for option, texts in options.items()]
    size = _scale(scale)
    sources = sources_of(experiment(name), size, Given(tuple(phantom or ()), *named))
    rows = tuple(row for row in only.split(",") if row)
    experiment(name).chosen(rows)
    plan = Plan(size, sources, out, n, seed, chosen_device(device), features, rows)
    outcome = _with_figures(run_experiment(name, plan, progress_of))
    path = write_table(name, plan, outcome)
    print(json.dumps(told(name, plan, outcome))) if as_json else _print(outcome, path)


def _scale(text: str) -> "Scale":
    scales: tuple[Scale, ...] = ("small", "full")
    if text not in scales:
        raise InputError(unknown("--scale", text, scales))
    return scales[scales.index(text)]


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
