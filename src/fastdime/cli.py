"""The command line: parse, call one library function, print. Heavy imports wait until a command runs."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fastdime import (
    __version__,
    cli_audit,
    cli_bench,
    cli_bundle,
    cli_data,
    cli_options,
    cli_paper,
    cli_report,
    cli_score,
    cli_train,
    cli_tune,
)
from fastdime.cli_options import Architecture, Json
from fastdime.errors import FastdimeError
from fastdime.terminal import interrupt_later, print_numbers, print_rows, progress_of

BAD_INPUT, SOME_FAILED, INTERRUPTED = 2, 3, 130

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Does an image classifier lean on a shortcut? Counterfactuals that say how much.",
)
app.add_typer(cli_bench.app, name="bench")
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_bundle.app, name="bundle")
app.add_typer(cli_train.app, name="train")
app.add_typer(cli_paper.app, name="paper")
app.command()(cli_score.score)
app.command()(cli_score.compare)
app.command()(cli_audit.audit)
app.command()(cli_audit.validate)
app.command()(cli_audit.mitigate)
app.command()(cli_report.report)
app.command()(cli_tune.tune)


def main() -> NoReturn:
    """Run the command line; what a user can mend is one line and exit code 2."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="fastdime", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        _complain(_sentence(error))
        code = BAD_INPUT
    if code == INTERRUPTED:  # some versions of typer return it, some raise
        _complain("interrupted; run the same command again to go on")
    sys.exit(code or 0)


def _sentence(error: Exception) -> str:
    """Return what a user can mend; anything else is a bug and shows its traceback."""
    if isinstance(error, FastdimeError):
        return str(error)
    # An argument that typer itself refuses; where the class lives depends on its version.
    if callable(message := getattr(error, "format_message", None)):
        return str(message())
    raise error


def _complain(sentence: str) -> None:
    print("fastdime:", " ".join(sentence.splitlines()), file=sys.stderr)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def explain(
    data: cli_options.Data,
    out: Annotated[Path, typer.Option(help="Run folder; run the same command again to go on with it.")],
    bundle: cli_options.Bundle = None,
    denoiser: cli_options.Denoiser = None,
    classifier: cli_options.Classifier = None,
    architecture: Architecture = None,
    features: cli_options.Features = None,
    method: cli_options.Method = None,
    preset: cli_options.Preset = "default",
    change: cli_options.Change = None,
    config: cli_options.Config = None,
    target: cli_options.Target = "flip",
    batch_size: cli_options.BatchSize = "auto",
    size: cli_options.Size = None,
    convert_channels: cli_options.Convert = False,
    allow: cli_options.Allow = None,
    forbid: cli_options.Forbid = None,
    limit: cli_options.Limit = None,
    root: cli_options.Root = None,
    seed: cli_options.Seed = 0,
    device: cli_options.Device = "auto",
    engine: Annotated[
        str, typer.Option(help="What runs the denoiser: torch, or onnx, faster on a CPU (extra onnx).")
    ] = "torch",
    strict: Annotated[bool, typer.Option(help="Stop at the first image that cannot be used.")] = False,
    as_json: Json = False,
) -> None:
    """Make counterfactuals of a data set."""
    with interrupt_later():
        from fastdime.pipeline import models
        from fastdime.pipeline.choice import wanted_settings
        from fastdime.pipeline.explain import explain as run
        from fastdime.pipeline.options import run_options

    name, settings = wanted_settings(config, method, change or [], preset, bundle)
    options = run_options(
        target=target,
        batch_size=batch_size,
        limit=limit,
        size=size,
        convert=convert_channels,
        allow=allow,
        forbid=forbid,
        strict=strict,
        root=root,
    )
    sources = models.Sources(bundle, denoiser, classifier, architecture, features, engine)
    explainer = models.open_explainer(sources, settings, seed, device)
    with progress_of("images") as progress:
        summary = run(data, explainer, out, options, sources=sources.named(name), progress=progress)
    numbers = {"out": str(out), "method": name, **asdict(summary)}
    print_numbers(numbers, as_json)
    if summary.errors:
        total = summary.images + summary.errors
        _complain(f"{summary.errors} of {total} images could not be used; see {out}/records.jsonl")
        raise typer.Exit(SOME_FAILED)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods, what they do and what they cost."""
    from fastdime.counterfactuals.methods import METHODS, cost, settings_for

    rows = []
    for name, method in METHODS.items():
        denoiser, gradient = cost(settings_for(name))
        rows.append(
            {
                "method": name,
                "summary": method.summary,
                "denoiser_calls": denoiser,
                "gradient_calls": gradient,
            }
        )
    if as_json:
        print(json.dumps({"methods": rows}))
        return
    print(f"{'method':<17} {'denoiser':>8} {'gradient':>8}  (calls of one attempt on one image)")
    for row in rows:
        print(f"{row['method']:<17} {row['denoiser_calls']:>8} {row['gradient_calls']:>8}  {row['summary']}")


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="Checkpoint or diffusers folder.")],
    out: Annotated[Path, typer.Argument(help="New diffusers folder.")],
    architecture: Architecture = None,
) -> None:
    """Write a denoiser as a diffusers folder."""
    from fastdime.diffusion.checkpoints import convert as run

    print(run(source, out, architecture))


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Option(help="PNG to write.")],
    limit: Annotated[int, typer.Option(min=1, help="How many images.")] = 12,
    truth: Annotated[
        Path | None, typer.Option(help="Phantom set that was explained: draw its exact counterfactuals too.")
    ] = None,
) -> None:
    """Draw the images of a run: input, counterfactual, difference, mask."""
    from fastdime.report.grid import draw_run

    print(draw_run(run, out, limit, truth))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, audit, report and picture.")] = Path("demo"),
    phantom: Annotated[str, typer.Option(help="One that has task models to audit.")] = "chest-pacemaker",
    n: Annotated[int, typer.Option(min=2, help="How many images.")] = 40,
    method: Annotated[str, typer.Option(help="See `fastdime methods`.")] = "fastdime-null",
    as_json: Json = False,
) -> None:
    """Audit three models that learned from planted correlations, beside the exact truth."""
    with interrupt_later():
        from fastdime.audit.output import TABLE, table_row
        from fastdime.experiments.demo import COLUMNS
        from fastdime.experiments.demo import demo as run
        from fastdime.report.grid import draw_run
        from fastdime.report.page import write_report

    story = run(out, phantom, n, method, progress_of)
    picture = draw_run(story.run, out / "demo.png", 8, truth=story.data)
    report = write_report(story.folder, out / "report.html").path
    if as_json:
        audit = story.audit.model_dump(mode="json")
        files = {"picture": str(picture), "report": str(report)}
        print(json.dumps({"rows": story.scores, "audit": audit, **files}))
        return
    print("How good the counterfactuals are, against the exact ones:")
    print_rows(story.scores, ("direction", "n", *COLUMNS, "seconds_per_image"))
    print(
        "\nWhat they say of three models; kK learned where the pacemaker went with the disease in K percent:"
    )
    print_rows([table_row(row) for row in story.audit.rows], TABLE, left=("model", "output", "shortcut"))
    for row in story.audit.rows:
        print(f"{row.model}: {row.verdict}: {row.reason}.")
    for warning in story.audit.warnings:
        print(f"Warning: {warning}.")
    print(f"\nLook at {picture}: input, counterfactual, what changed, the mask, and the exact truth.")
    command = f"fastdime audit --bundle {phantom} --data TABLE --shortcut COLUMN --model MODEL --out RUN"
    print(f"Next, with a model of your own: {command}")
    print(f"The report: {report}")
