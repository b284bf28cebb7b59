"""Commands of `fastdime bench`: what the library costs and what its methods are worth."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fastdime.cli_options import Json, Preset
from fastdime.terminal import print_numbers, print_rows, progress_of

app = typer.Typer(help="Measure what the library itself costs.")
Methods = Annotated[str, typer.Option(help="Names with commas between: see `fastdime methods`.")]


@app.command()
def truth(
    phantom: Annotated[
        list[str] | None, typer.Option(help="A bundle; may be given again. All of them.")
    ] = None,
    methods: Methods = "fastdime",
    n: Annotated[int, typer.Option(min=1, help="Subjects, each with the shortcut and without.")] = 128,
    as_json: Json = False,
) -> None:
    """Score methods on phantoms against the exact counterfactuals."""
    from fastdime.bundles import shipped
    from fastdime.experiments.truth import truth as run

    with progress_of("images") as progress:
        rows = run(phantom or shipped(), methods.split(","), n, progress)
    _print_table(rows, as_json)


def _print_table(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"rows": rows}))
    else:
        print_rows(rows, tuple(rows[0]))


@app.command()
def speed(
    phantom: Annotated[str, typer.Option(help="A bundle of a phantom.")] = "chest-pacemaker",
    methods: Methods = "dime,fastdime,maskdime,turbo",
    preset: Preset = "default",
    n: Annotated[int, typer.Option(help="Images, half of them with the shortcut.")] = 32,
    n_dime: Annotated[int, typer.Option(help="Images for DiME, whose cost is quadratic.")] = 4,
    config: Annotated[
        Path | None, typer.Option(help="JSON of settings to change: {method: {setting: value}}.")
    ] = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Do not measure peak memory.")] = False,
    as_json: Json = False,
) -> None:
    """Time methods on the same images in turn, beside their scores against the exact counterfactuals."""
    from fastdime.experiments.speed import Contest, read_config
    from fastdime.experiments.speed import speed as run

    changes = {} if config is None else read_config(config)
    contest = Contest(phantom, methods.split(","), preset, n, n_dime, changes, not no_memory)
    with progress_of("denoiser calls") as progress:
        rows = run(contest, progress)
    _print_table(rows, as_json)


@app.command()
def response(
    phantom: Annotated[str, typer.Option(help="A bundle of a phantom.")] = "chest-pacemaker",
    methods: Methods = "fastdime,fastdime-null,turbo",
    n: Annotated[int, typer.Option(min=1, help="Subjects, each with the shortcut and without.")] = 64,
    as_json: Json = False,
) -> None:
    """Let task models with planted correlations answer to counterfactuals, beside the exact ones."""
    from fastdime.experiments.response import responses as run

    with progress_of("images") as progress:
        rows = run(phantom, methods.split(","), n, progress)
    _print_table(rows, as_json)


@app.command()
def dose(
    out: Annotated[Path, typer.Option(help="Folder for the networks; run again to go on.")],
    phantom: Annotated[list[str] | None, typer.Option(help="May be given again. All of them.")] = None,
    k: Annotated[str, typer.Option(help="Correlations, with commas between.")] = "100,75,50",
    seeds: Annotated[int, typer.Option(min=1, help="Networks for each.")] = 3,
    as_json: Json = False,
) -> None:
    """Train networks on planted correlations; switch the shortcut exactly, and see how far they move."""
    from fastdime.data.phantoms.design import parse_k
    from fastdime.data.phantoms.phantom import STUDIES
    from fastdime.experiments.dose import dose_response as run

    ks = [value for value in map(parse_k, k.split(",")) if value is not None]
    with progress_of("networks") as progress:
        rows = run(phantom or list(STUDIES), ks, seeds, out, progress)
    _print_table(rows, as_json)


@app.command()
def overhead(
    steps: Annotated[int, typer.Option(help="Guided steps.")] = 20,
    repeats: Annotated[int, typer.Option(help="Interleaved rounds.")] = 5,
    as_json: Json = False,
) -> None:
    """Time of FastDiME and turbo over that of their bare network calls, and growth of memory with steps."""
    from fastdime.experiments.bench import overhead as run

    print_numbers(run(steps, repeats), as_json)


@app.command("train")
def bench_train(
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure.")] = 20,
    as_json: Json = False,
) -> None:
    """Images that a training of the default denoiser sees in a second."""
    from fastdime.experiments.bench import training_speed as run

    print_numbers(run(seconds), as_json)
