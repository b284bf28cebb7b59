"""The command that finds settings for images of one's own."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdime import cli_options as options
from fastdime.errors import InputError, expected
from fastdime.terminal import interrupt_later, print_rows, progress_of

if TYPE_CHECKING:
    from fastdime.experiments.search import Row, Tuned
    from fastdime.pipeline.options import RunOptions

SOME_FAILED = 3
AGAIN = ("bundle", "denoiser", "classifier", "architecture", "features", "size")
SCORES = (
    "oracle_flip",
    "guide_flip",
    "mean_change",
    "changed_area",
    "mask_area",
    "denoiser_calls",
    "seconds_per_image",
)
Data = Annotated[str, typer.Option(help="Pilot images: table, folder of images, or one image.")]
Out = Annotated[Path, typer.Option(help="JSON for `fastdime explain --config`; run again to go on.")]
Grid = Annotated[
    list[str] | None,
    typer.Option(help="Values to try, e.g. tau=20,30 or scales=5,10:20; again: more settings."),
]
Oracle = Annotated[
    str | None, typer.Option(help="Says whether an image flipped: a name in the bundle, or as --classifier.")
]
Shortcut = Annotated[str | None, typer.Option(help="Column of labels to flip: --target flip:COLUMN.")]


def tune(
    context: typer.Context,
    data: Data,
    out: Out = Path("tuned.json"),
    bundle: options.Bundle = None,
    denoiser: options.Denoiser = None,
    classifier: options.Classifier = None,
    architecture: options.Architecture = None,
    features: options.Features = None,
    method: options.Method = None,
    preset: options.Preset = "default",
    change: options.Change = None,
    config: options.Config = None,
    grid: Grid = None,
    oracle: Oracle = None,
    shortcut: Shortcut = None,
    target: options.Target = "flip",
    batch_size: options.BatchSize = "auto",
    size: options.Size = None,
    convert_channels: options.Convert = False,
    allow: options.Allow = None,
    forbid: options.Forbid = None,
    limit: options.Limit = None,
    root: options.Root = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Find the strength and the start level for your images, on a pilot set."""
    with interrupt_later():
        from fastdime.experiments.grids import parse_grid
        from fastdime.experiments.search import open_oracle, tune_settings
        from fastdime.pipeline import choice, models

    choice.check_place(out)
    name, settings = choice.wanted_settings(config, method, change or [], preset, bundle)
    values = parse_grid(grid, type(settings)) if grid else None
    reading = _reading(context)
    sources = models.Sources(bundle, denoiser, classifier, architecture, features)
    explainer = models.open_explainer(sources, settings, seed, device)
    judge, judging = open_oracle(oracle, sources) or (None, None)
    runs = out.with_name(f"{out.name}.runs")
    with progress_of("images") as show:
        tuned = tune_settings(data, explainer, runs, values, oracle=judging, options=reading, progress=show)
    told: dict[str, Any] = {"oracle": judge, "chosen": tuned.chosen, "warnings": list(tuned.warnings)}
    choice.write_choice(out, name, tuned.settings, **told)
    if as_json:
        print(json.dumps({"out": str(out), "method": name, **told, "rows": tuned.rows}))
    else:
        _print(tuned, out, _words(context))
    if failed := tuned.failed:
        total = tuned.chosen["images"] + len(failed)
        print(f"fastdime: {len(failed)} of {total} images could not be used: {failed[0]}", file=sys.stderr)
        raise typer.Exit(SOME_FAILED)


def _reading(context: typer.Context) -> "RunOptions":
    from fastdime.pipeline.options import RunOptions, run_options

    given = {name: value for name, value in context.params.items() if name in RunOptions.model_fields}
    target, shortcut = context.params["target"], context.params["shortcut"]
    if shortcut is not None and target != "flip":
        raise InputError(expected("--target", "none beside --shortcut", target, "leave one out"))
    given["target"] = target if shortcut is None else f"flip:{shortcut}"
    return run_options(**given, convert=context.params["convert_channels"])


def _print(tuned: "Tuned", out: Path, words: list[str]) -> None:
    from fastdime.experiments.grids import spelled

    def line(row: "Row") -> "Row":
        values = {name: spelled(value) for name, value in row["settings"].items()}
        return {"": "*" if row is tuned.chosen else "", **values, **row}

    names = list(tuned.chosen["settings"])
    shown = [score for score in SCORES if tuned.chosen[score] is not None]
    lost = ["diverged"] if any(row.get("diverged") for row in tuned.rows) else []
    print_rows([line(row) for row in tuned.rows], ["", *names, *shown, *lost])
    for row in tuned.rows:
        if "refused" in row:
            print(f"Refused: {_values(row)}: {row['refused']}")
    for warning in tuned.warnings:
        print(f"Warning: {warning}.")
    print(f"\nChosen (*): {_values(tuned.chosen)}, in {out}. Look at the pictures first:")
    print(shlex.join(["fastdime", "show", tuned.chosen["run"], "--out", "tuned.png"]))
    command = ["fastdime", "explain", *words, "--data", "DATA", "--out", "RUN", "--config", str(out)]
    print(f"Next: {shlex.join(command)}")


def _values(row: "Row") -> str:
    from fastdime.experiments.grids import spelled

    return ", ".join(f"{name}={spelled(value)}" for name, value in row["settings"].items())


def _words(context: typer.Context) -> list[str]:
    """Repeat what `fastdime explain` needs to be told too."""
    given = [(name, context.params[name]) for name in AGAIN]
    words = [word for name, value in given if value is not None for word in (f"--{name}", str(value))]
    return [*words, *(["--convert-channels"] if context.params["convert_channels"] else [])]
