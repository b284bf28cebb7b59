"""Commands that train a denoiser, a guide and a task model."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdime.errors import InputError, expected
from fastdime.terminal import interrupt_later, print_numbers, progress_of, silence_of

if TYPE_CHECKING:
    from fastdime.training.recipes import Kind

app = typer.Typer(help="Train the models: a denoiser, a guide that sees the shortcut, a task model to audit.")

Data = Annotated[str, typer.Option(help="Table (CSV with a column path) or folder of images.")]
Out = Annotated[Path, typer.Option(help="Folder of the run; run the same command again to go on with it.")]
Recipe = Annotated[str, typer.Option(help="small, celeba or medical.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder that paths in the table are relative to; that of the table.")
]
Split = Annotated[str | None, typer.Option(help="Column with train, val or test; `split` if there is one.")]
Group = Annotated[
    str | None,
    typer.Option(help="Column whose groups stay together; `patient` if there is one; none: no column."),
]
Where = Annotated[str | None, typer.Option(help="COLUMN=VALUE: only such rows, e.g. task=1.")]
Share = Annotated[float, typer.Option(help="Share of the training rows that validates, without val rows.")]
Size = Annotated[int | None, typer.Option(help="Resize the shorter side to this and crop.")]
Channels = Annotated[int | None, typer.Option(help="1 or 3; as the first image has, unless given.")]
Convert = Annotated[bool, typer.Option(help="Turn gray into colour or back where needed.")]
Steps = Annotated[int | None, typer.Option(help="Updates of the weights.")]
BatchSize = Annotated[int | None, typer.Option(help="Images of one update, for each process.")]
Rate = Annotated[float | None, typer.Option(help="At its highest.")]
Seed = Annotated[int | None, typer.Option(help="Of weights, order and noise.")]
Change = Annotated[list[str] | None, typer.Option("--set", help="A setting, e.g. --set ema=0.999.")]
From = Annotated[Path | None, typer.Option("--from", help="Folder or file with weights to begin with.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Changed = Annotated[
    list[str] | None, typer.Option("--augment", help="How images are changed, e.g. --augment erase=0.5.")
]
Width = Annotated[int | None, typer.Option(help="Channels of the first layer, for the small networks.")]
Architecture = Annotated[str | None, typer.Option(help="Network, e.g. small-cnn, resnet18; the recipe's.")]


@app.command()
def denoiser(
    data: Data,
    out: Out,
    recipe: Recipe = "small",
    root: Root = None,
    split: Split = None,
    group: Group = None,
    where: Where = None,
    valid_share: Share = 0.03,
    size: Size = None,
    channels: Channels = None,
    convert_channels: Convert = False,
    widths: Annotated[str | None, typer.Option(help="Channels of each level, e.g. 48,72,96.")] = None,
    layers: Annotated[int | None, typer.Option(help="Residual blocks of a level.")] = None,
    patch: Annotated[int | None, typer.Option(help="Pixels folded into one point; 1, 2 or 4.")] = None,
    prediction: Annotated[
        str | None, typer.Option(help="What the network answers: epsilon, v, sample or edm; the recipe's.")
    ] = None,
    focus: Annotated[
        float | None, typer.Option(help="Share of the chain, from little noise on, to learn best.")
    ] = None,
    emphasis: Annotated[
        str | None, typer.Option(help="A trained guide: errors where it looks count up to ten times.")
    ] = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: Rate = None,
    seed: Seed = None,
    change: Change = None,
    start: From = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a diffusion model on images; labels are not needed."""
    given = locals()
    shape = {"layers": layers, "patch": patch, "prediction": prediction, "focus": focus, "emphasis": emphasis}
    _run("denoiser", None, given, {"widths": _whole(widths), **shape})


@app.command()
def guide(
    data: Data,
    out: Out,
    shortcut: Annotated[str, typer.Option(help="Label column to learn.")] = "shortcut",
    recipe: Recipe = "small",
    root: Root = None,
    split: Split = None,
    group: Group = None,
    where: Where = None,
    valid_share: Share = 0.1,
    size: Size = None,
    channels: Channels = None,
    convert_channels: Convert = False,
    architecture: Architecture = None,
    width: Width = None,
    steer: Annotated[
        str | None,
        typer.Option(help="A trained denoiser: learn to mend what it gets wrong."),
    ] = None,
    augment: Changed = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: Rate = None,
    seed: Seed = None,
    change: Change = None,
    start: From = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train the classifier of the shortcut that steers counterfactuals."""
    _run("guide", shortcut, locals(), {"architecture": architecture, "width": width, "steer": steer})


@app.command()
def task(
    data: Data,
    out: Out,
    task: Annotated[str, typer.Option(help="Label column to learn.")] = "task",
    recipe: Recipe = "small",
    root: Root = None,
    split: Split = None,
    group: Group = None,
    where: Where = None,
    valid_share: Share = 0.1,
    size: Size = None,
    channels: Channels = None,
    convert_channels: Convert = False,
    architecture: Architecture = None,
    width: Width = None,
    augment: Changed = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: Rate = None,
    seed: Seed = None,
    change: Change = None,
    start: From = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a classifier of the task: a model to audit."""
    _run("task", task, locals(), {"architecture": architecture, "width": width})


def _whole(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(expected("--widths", "whole numbers with commas between", repr(text))) from None


def _run(kind: "Kind", label: str | None, given: Mapping[str, Any], network: Mapping[str, Any]) -> None:
    """Train with the options of a command, and print what came of it."""
    with interrupt_later():
        from fastdime.configs import changes
        from fastdime.training.choice import Choice
        from fastdime.training.devices import is_first
        from fastdime.training.request import Request, train_table

    choice = Choice(label, given["where"], given["split"], given["group"], given["valid_share"])
    request = Request(
        kind,
        given["data"],
        given["out"],
        choice,
        recipe=given["recipe"],
        size=given["size"],
        channels=given["channels"],
        convert=given["convert_channels"],
        root=given["root"],
        network=network,
        augment=changes(_once("--augment", given.get("augment") or []), option="--augment"),
        changes=_changes(given),
        start=given["start"],
        device=given["device"],
        command=shlex.join(["fastdime", *sys.argv[1:]]),
    )
    told = train_table(request, progress_of if is_first() else silence_of)
    if told is None:
        return
    told["next"] = _next(kind, given)
    shown = told if given["as_json"] else _lines(told)
    print_numbers(shown, given["as_json"])


def _changes(given: Mapping[str, Any]) -> dict[str, Any]:
    from fastdime.configs import changes
    from fastdime.training.settings import TrainSettings

    named = {name: given[name] for name in ("steps", "batch_size", "learning_rate", "seed")}
    plain = {name: value for name, value in named.items() if value is not None}
    items = _once("--set", given["change"] or [], plain)
    return {**changes(items, TrainSettings), **plain}


def _once(option: str, items: Sequence[str], others: Iterable[str] = ()) -> Sequence[str]:
    """Return NAME=VALUE items, unless a name is given twice or as an option of its own."""
    seen = set(others)
    for item in items:
        name = item.partition("=")[0]
        if name in seen:
            wanted = f"{name} to be given once"
            raise InputError(expected(f"{option} {item}", wanted, "it twice", "leave one out"))
        seen.add(name)
    return items


def _lines(told: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what the user has just typed."""
    from fastdime.training.cards import flat

    return dict(
        flat({name: value for name, value in told.items() if name not in ("command", "data", "kind")})
    )


def _next(kind: "Kind", given: Mapping[str, Any]) -> str:
    from fastdime.bundles import DENOISER, part_of

    data, folder = shlex.quote(given["data"]), shlex.quote(str(given["out"]))
    if kind == "denoiser" and Path(given["data"]).is_dir():  # it says nothing of a shortcut
        command = f"fastdime train guide --data TABLE{_reading(given, 'size', 'channels')} --out GUIDE"
        return f"{command} (a table with a column for the shortcut)"
    if kind == "denoiser":
        return f"fastdime train guide --data {data}{_reading(given, 'root', 'size', 'channels')} --out GUIDE"
    steered = given.get("steer")
    denoiser = shlex.quote(str(part_of(steered, DENOISER))) if steered else "DENOISER/denoiser"
    models = f"--denoiser {denoiser} --classifier {folder}/classifier"
    return f"fastdime explain --data {data}{_reading(given, 'root', 'size')} {models} --out RUN"


def _reading(given: Mapping[str, Any], *names: str) -> str:
    """Repeat how images were read, where that was said."""
    said = [f" --{name} {shlex.quote(str(given[name]))}" for name in names if given[name] is not None]
    return "".join(said) + (" --convert-channels" if given["convert_channels"] else "")
