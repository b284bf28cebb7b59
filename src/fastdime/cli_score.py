"""Commands that score counterfactuals."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastdime.errors import InputError, expected
from fastdime.terminal import interrupt_later, print_rows, progress_of

if TYPE_CHECKING:
    from fastdime.scoring.request import ScoreRequest
    from fastdime.scoring.score import Scores

SOME_FAILED = 3
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Metrics = Annotated[str | None, typer.Option(help="Names with commas between; --list shows them.")]
Protocol = Annotated[str, typer.Option(help="Pairs of each metric: default or published.")]
Subset = Annotated[str | None, typer.Option(help="Pairs of all metrics but fr: all, valid or correct.")]
Classifier = Annotated[
    str | None, typer.Option(help="Who judges: folder, file, module:function or bundle. That of the run.")
]
LabelTable = Annotated[Path | None, typer.Option("--labels", help="Table with a row for each id.")]
Label = Annotated[str | None, typer.Option(help="Its column with the true class.")]
Shortcut = Annotated[str | None, typer.Option(help="Its column that says whether the shortcut is there.")]
Group = Annotated[str | None, typer.Option(help="Its column of patients: `patient` if there; or none.")]
Features = Annotated[
    str, typer.Option(help="Network of fid, sfid, kid, fs; `fastdime score --list` names some.")
]
Face = Annotated[str | None, typer.Option(help="Network of fva, e.g. dlib-face.")]
Truth = Annotated[Path | None, typer.Option(help="Phantom set that was explained; found if not moved.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Pairs at a time.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
Seed = Annotated[int, typer.Option(min=0, help="Of resampling.")]


def score(
    context: typer.Context,
    run: Annotated[Path | None, typer.Argument(help="Run folder of `fastdime explain`.")] = None,
    original: Annotated[Path | None, typer.Option(help="Folder or table of originals.")] = None,
    counterfactual: Annotated[Path | None, typer.Option(help="Folder or table, with the same names.")] = None,
    metrics: Metrics = None,
    protocol: Protocol = "default",
    subset: Subset = None,
    classifier: Classifier = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="For folders: fit originals to this square.")
    ] = None,
    convert_channels: Annotated[
        bool, typer.Option(help="For folders: turn originals gray or into colour where needed.")
    ] = False,
    target: Annotated[str, typer.Option(help="For folders: flip, a class, or column:COLUMN.")] = "flip",
    labels: LabelTable = None,
    label: Label = None,
    shortcut: Shortcut = None,
    group: Group = None,
    features: Features = "efficientnet-lite0",
    face: Face = None,
    attributes: Annotated[
        str | None, typer.Option(help="module:function with one output an attribute, for mnac and cd.")
    ] = None,
    attribute_names: Annotated[str, typer.Option(help="Its outputs, as columns of --labels.")] = "",
    query: Annotated[str | None, typer.Option(help="The attribute that was to change, for cd.")] = None,
    lpips: Annotated[str | None, typer.Option(help="TRUNK,LINEAR: two files with weights.")] = None,
    truth: Truth = None,
    per_image: Annotated[Path | None, typer.Option(help="CSV to write: all numbers of all pairs.")] = None,
    batch_size: BatchSize = 32,
    device: Device = "auto",
    seed: Seed = 0,
    list_all: Annotated[bool, typer.Option("--list", help="List metrics and feature networks.")] = False,
    as_json: Json = False,
) -> None:
    """Score counterfactuals: of a run, or of two folders of pictures made by any tool."""
    if list_all:
        _list(as_json)
        return
    with interrupt_later():
        from fastdime.pipeline.pairs import open_pairs
        from fastdime.scoring.output import check_place, write_values
        from fastdime.scoring.score import score as run_score

    request = _request(context)
    if per_image is not None:
        check_place(per_image, labels)
    pairs = open_pairs(run, original, counterfactual, size=size, convert=convert_channels)
    with progress_of("pairs") as progress:
        scores = run_score(pairs, request, progress)
    if per_image is not None:
        write_values(per_image, scores)
    if as_json:
        print(json.dumps(scores.plain()))
    else:
        _print(scores)
    _tell_failures(scores)


def compare(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders over the same images.")],
    metrics: Metrics = None,
    protocol: Protocol = "default",
    subset: Subset = None,
    classifier: Classifier = None,
    labels: LabelTable = None,
    label: Label = None,
    shortcut: Shortcut = None,
    group: Group = None,
    features: Features = "efficientnet-lite0",
    face: Face = None,
    truth: Truth = None,
    batch_size: BatchSize = 32,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Score runs side by side; each is compared with the first, image by image."""
    with interrupt_later():
        from fastdime.pipeline.pairs import pairs_of_run
        from fastdime.scoring.compare import compare as run_compare
        from fastdime.scoring.score import score as run_score

    request = _request(context)
    if len(runs) < 2:
        raise InputError(expected("compare", "two or more run folders", len(runs)))
    found = []
    for run in runs:
        with progress_of(f"pairs of {run}") as progress:
            found.append(run_score(pairs_of_run(run), request, progress))
    comparison = run_compare(found, request)
    if as_json:
        print(json.dumps({"rows": [line.plain() for line in comparison]}))
    else:
        from fastdime.scoring.compare import TEXTS

        print_rows([line.told() for line in comparison], tuple(comparison[0].told()), left=TEXTS)
        for scores in found:
            _print_notes(scores, f"{scores.source}: ")
    _tell_failures(*found)


def _request(context: typer.Context) -> "ScoreRequest":
    """Make a request of the options that are about it."""
    from fastdime.configs import checked
    from fastdime.pipeline.models import chosen_device
    from fastdime.scoring.request import ScoreRequest

    given = {name: value for name, value in context.params.items() if name in ScoreRequest.model_fields}
    given["device"] = chosen_device(given["device"])
    if (given.get("lpips") or ",").count(",") != 1:
        raise InputError(expected("--lpips", "TRUNK,LINEAR: two files with weights", repr(given["lpips"])))
    for name in ("metrics", "attribute_names", "lpips"):
        if name in given:
            given[name] = given[name].split(",") if given[name] else ScoreRequest.model_fields[name].default
    return checked(ScoreRequest, given, "score", InputError)


def _list(as_json: bool) -> None:
    from fastdime.features.registry import NETWORKS
    from fastdime.scoring.catalogue import METRICS

    metrics = [
        {"metric": name, "pairs": known.subset, "summary": known.summary} for name, known in METRICS.items()
    ]
    networks = [
        {"network": name, "needs": known.needs, "summary": known.summary} for name, known in NETWORKS.items()
    ]
    if as_json:
        print(json.dumps({"metrics": metrics, "networks": networks}))
        return
    for line in metrics:
        print(f"{line['metric']:<19} {line['pairs']:<6} {line['summary']}")
    print()
    for line in networks:
        print(f"{line['network']:<19} {line['summary']}; needs {line['needs']}")


def _print(scores: "Scores") -> None:
    from fastdime.scoring.rows import COLUMNS, TEXTS

    print_rows([row.told(name) for name, row in scores.rows.items()], COLUMNS, left=TEXTS)
    _print_notes(scores)


def _print_notes(scores: "Scores", about: str = "") -> None:
    """Print what has to be known, each thing once."""
    notes: dict[str, list[str]] = {}
    for name, row in scores.rows.items():
        if row.warning:
            notes.setdefault(row.warning, []).append(name)
    for warning, names in notes.items():
        print(f"{about}{', '.join(names)}: {warning}")
    for note in scores.notes:
        print(f"{about}{note}")


def _tell_failures(*found: "Scores") -> None:
    for scores in found:
        if scores.failed:
            total = len(scores.failed) + int(scores.standing.read.sum())
            told = f"{len(scores.failed)} of {total} pairs of {scores.source} could not be used"
            print(f"fastdime: {told}: {scores.failed[0]}", file=sys.stderr)
    if any(scores.failed for scores in found):
        raise typer.Exit(SOME_FAILED)
