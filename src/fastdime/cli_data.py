"""Commands that make and show data sets."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fastdime.errors import InputError, expected
from fastdime.terminal import interrupt_later, print_numbers, print_rows, progress_of

if TYPE_CHECKING:
    from fastdime.audit.curate import Rule

SOME_FAILED = 3  # exit code: done, but some images could not be used

app = typer.Typer(help="Make tables of images, look at them, and draw images with exact truth.")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Convert = Annotated[
    bool, typer.Option("--convert-channels", help="Turn gray into colour or back, instead of refusing it.")
]
Root = Annotated[
    Path | None, typer.Option(help="Folder that paths in the table are relative to; that of the table.")
]


@app.command()
def phantom(
    name: Annotated[str, typer.Argument(help="chest-pacemaker, chest-drain, skin-ruler or face-smile.")],
    out: Annotated[Path, typer.Option(help="Folder for images, table.csv and truth.")],
    n: Annotated[int, typer.Option(help="How many images.")] = 200,
    k: Annotated[str, typer.Option(help="Correlation of shortcut and task: 100, 75, 50, or none.")] = "none",
    seed: Annotated[int, typer.Option(help="Of the subjects; another seed is other people.")] = 0,
    size: Annotated[int, typer.Option(help="Pixels of a side, 32 to 224.")] = 64,
    dial: Annotated[list[str] | None, typer.Option(help="A dial, e.g. --dial contrast=0.5.")] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="A part and its share, e.g. --split train=0.9 --split val=0.1.")
    ] = None,
    truth: Annotated[bool, typer.Option(help="Write the exact counterfactuals too.")] = True,
) -> None:
    """Write synthetic images whose exact counterfactual is known."""
    from fastdime.configs import checked
    from fastdime.data.phantoms.design import Dials
    from fastdime.data.phantoms.write import SPLITS, PhantomSet, write_phantom

    dials = checked(Dials, _named(dial or [], "--dial"), "dials", InputError)
    splits = {part: _share(part, share) for part, share in _named(split or [], "--split").items()} or SPLITS
    with progress_of("images") as progress:
        print(write_phantom(out, PhantomSet(name, n, k, seed, size, dials, splits, truth), progress))


def _share(part: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(expected(f"--split {part}", "a share, e.g. train=0.9", repr(text))) from None


def _named(items: list[str], option: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        name, _, value = item.partition("=")
        if name in found:
            raise InputError(expected(option, "each name once", f"{name!r} twice", "take one of them out"))
        found[name] = value
    return found


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Folder written by `fastdime data phantom`.")],
    out: Annotated[Path, typer.Option(help="PNG to write.")],
    limit: Annotated[int, typer.Option(min=1, help="How many images.")] = 12,
) -> None:
    """Draw the images of a phantom with their truth."""
    from fastdime.data.phantoms.show import draw_set

    print(draw_set(folder, out, limit))


@app.command()
def table(
    name: Annotated[str, typer.Argument(help="celeba, chexpert, nih, isic or own.")],
    root: Annotated[Path, typer.Argument(help="Folder with the images.")],
    annotations: Annotated[Path | None, typer.Option(help="CSV with labels, joined by image name.")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV to write; ROOT/fastdime.csv unless given.")] = None,
    task: Annotated[str | None, typer.Option(help="Label column, if not that of the paper.")] = None,
    shortcut: Annotated[str | None, typer.Option(help="Label column, if not that of the paper.")] = None,
    path_column: Annotated[str, typer.Option(help="Own data: column with the image files.")] = "path",
    id_column: Annotated[str, typer.Option(help="Own data: column with names of images.")] = "id",
    group: Annotated[str | None, typer.Option(help="Own data: column with the patient.")] = None,
) -> None:
    """Write the table of a data set: images, labels and split, for all other commands."""
    from fastdime.data.studies.catalog import read_study
    from fastdime.data.studies.own import ColumnNames, read_own
    from fastdime.data.table import check_other_file, write_table

    place = out or root / "fastdime.csv"
    if annotations is not None:
        check_other_file(place, annotations)
    if name == "own":
        names = ColumnNames(path_column, id_column, group, task, shortcut)
        joined = read_own(root, annotations, names)
    else:
        joined = read_study(name, root, annotations, task=task, shortcut=shortcut)
    written = write_table(joined.table, place, root)
    print(joined.sentence(), file=sys.stderr)
    print(written)
    _tell_root(written, root)


def _tell_root(written: Path, root: Path) -> None:
    if written.resolve().parent != root.resolve():
        print(f"its paths are relative to {root}: use it with --root {root}", file=sys.stderr)


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(help="Table, or folder of images.")],
    task: Annotated[str | None, typer.Option(help="Label column; `task` unless given.")] = None,
    shortcut: Annotated[str | None, typer.Option(help="Label column; `shortcut` unless given.")] = None,
    group: Annotated[str | None, typer.Option(help="Column of patients; `patient` unless given.")] = None,
    root: Root = None,
    check: Annotated[bool, typer.Option("--check", help="Open every image; look for duplicates.")] = False,
    as_json: Json = False,
) -> None:
    """Count images by split, task and shortcut, and look at the files."""
    from fastdime.data.inspect import Roles, as_text
    from fastdime.data.inspect import inspect as run
    from fastdime.data.table import read_table

    images = read_table(source, group=group, root=root)
    with progress_of("images") as progress:
        result = run(images, Roles(task, shortcut, group), check=check, progress=progress)
    if as_json:
        print_numbers(result, as_json)
    else:
        print(as_text(result))
    if result["files"]["unreadable"]:
        raise typer.Exit(SOME_FAILED)


@app.command()
def pseudo_label(
    source: Annotated[Path, typer.Argument(help="Table of which some images are labelled.")],
    column: Annotated[str, typer.Option(help="Label column: 0, 1 or blank.")],
    out: Annotated[Path, typer.Option(help="CSV to write.")],
    high: Annotated[float, typer.Option(help="Label 1 above this probability.")] = 0.8,
    low: Annotated[float, typer.Option(help="Label 0 below this probability.")] = 0.01,
    model: Annotated[str | None, typer.Option(help="Trained classifier; one is fitted unless given.")] = None,
    work: Annotated[Path | None, typer.Option(help="Folder of the fit; OUT without .csv.")] = None,
    recipe: Annotated[str, typer.Option(help="small, celeba or medical, as for `train task`.")] = "small",
    architecture: Annotated[str | None, typer.Option(help="Network, e.g. densenet121; the recipe's.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, e.g. --set steps=500.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Resize the shorter side to this and crop.")] = None,
    channels: Annotated[
        int | None, typer.Option(help="1 or 3; as the first image has, unless given.")
    ] = None,
    convert_channels: Convert = False,
    group: Annotated[str | None, typer.Option(help="Column of patients; `patient` unless given.")] = None,
    root: Root = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Json = False,
) -> None:
    """Label images that nobody labelled, where a classifier of the labelled ones is sure."""
    with interrupt_later():
        from fastdime.configs import changes
        from fastdime.data.table import check_other_file, check_table_name, read_table, write_table
        from fastdime.experiments import pseudo_labels as run
        from fastdime.experiments.predictions import Reading
        from fastdime.training.settings import TrainSettings

    check_table_name(out)  # before hours of work
    check_other_file(out, source)
    table = read_table(source, group=group, root=root)
    fit = run.Fit(
        work or out.with_suffix(""), recipe, architecture, changes(change or [], TrainSettings), device
    )
    done = run.pseudo_label(
        table,
        run.Rule(column, high, low, group),
        fit if model is None else model,
        Reading(size, channels, convert_channels),
        progress_of,
    )
    folder = root or source.parent
    written = write_table(done.table, out, folder)
    print_numbers({"table": str(written), **done.report}, as_json)
    _tell_root(written, folder)
    if done.report["unreadable"]:
        raise typer.Exit(SOME_FAILED)


@app.command()
def prepare(
    source: Annotated[str, typer.Argument(help="Table, or folder of images.")],
    out: Annotated[Path, typer.Option(help="Folder for images and table.csv; run again to go on.")],
    like: Annotated[str | None, typer.Option(help="As published for celeba, chexpert, nih or isic.")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels of a side.")] = None,
    channels: Annotated[
        int | None, typer.Option(help="1 or 3; as the first image has, unless given.")
    ] = None,
    convert_channels: Convert = False,
    fit: Annotated[str | None, typer.Option(help="crop the centre, or stretch both sides.")] = None,
    smooth: Annotated[str | None, typer.Option(help="bilinear or bicubic.")] = None,
    root: Root = None,
) -> None:
    """Write images of one size and depth once, with a table of them."""
    from fastdime.configs import checked
    from fastdime.data.forms import Form
    from fastdime.data.prepare import prepare as run
    from fastdime.data.studies.catalog import form_like
    from fastdime.data.table import read_table

    if size is None and like is None:
        raise InputError(expected("form of the images", "--size or --like", "neither"))
    convert = convert_channels or None  # not given: as --like says
    given = {"size": size, "channels": channels, "convert": convert, "fit": fit, "smooth": smooth}
    values = {} if like is None else form_like(like).model_dump()
    values |= {name: value for name, value in given.items() if value is not None}
    form = checked(Form, values, "form of the images", InputError)
    with progress_of("images") as progress:
        done = run(read_table(source, root=root), out, form, progress)
    print(done.table)
    if done.errors:
        count, first = len(done.errors), done.errors[0]
        print(f"images that could not be used: {count}; the first: {first}", file=sys.stderr)
        raise typer.Exit(SOME_FAILED)


@app.command()
def curate(
    data: Annotated[Path, typer.Option(help="Table with a column for the task and one for the shortcut.")],
    out: Annotated[Path, typer.Option(help="Folder for the lists of images.")],
    task: Annotated[str, typer.Option(help="Label column.")] = "task",
    shortcut: Annotated[str, typer.Option(help="Label column.")] = "shortcut",
    k: Annotated[str, typer.Option(help="Correlations in percent, with commas between.")] = "100,75,50",
    rule: Annotated[str, typer.Option(help="balanced; or celeba, medical: as published.")] = "balanced",
    n: Annotated[int | None, typer.Option(help="Images of each D_k; as many as there can be.")] = None,
    n_test: Annotated[
        int | None, typer.Option(help="Images of each test_k; as many as there can be.")
    ] = None,
    n_balanced: Annotated[int | None, typer.Option(help="Images of test_u; as many as there can be.")] = None,
    seed: Annotated[int, typer.Option(help="Of the rule balanced.")] = 0,
    split: Annotated[
        str | None,
        typer.Option(help="Column with train, val or test; `split` if there is one; none: make a new split."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column whose groups stay together; `patient` if there is one; none: no column."),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Choose images so that the shortcut goes with the task in k percent of them; write lists of them."""
    from fastdime.audit.cells import Columns, Plan
    from fastdime.audit.curation_files import write_curation
    from fastdime.data.splits import NONE
    from fastdime.data.table import read_table

    columns = Columns(task, shortcut, split, group)
    plan = Plan(_percents(k), n, n_test, n_balanced, seed)
    images = read_table(data, group=None if group == NONE else group, root=root)
    made = write_curation(
        out, images, root or data.parent, columns=columns, plan=plan, rule=cast("Rule", rule)
    )
    if as_json:
        print_numbers({"folder": str(out), **made.info.model_dump(mode="json")}, as_json)
        return
    rows = made.rows()
    print_rows(rows, tuple(rows[0]), left=("set",))
    for reason, count in made.info.left_out.items():
        print(f"left out: {count} with a {reason}")
    for note in made.info.notes:
        print(f"note: {note}")


def _percents(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        wanted = "percentages with commas between, e.g. 100,75,50"
        raise InputError(expected("--k", wanted, repr(text))) from None
