"""Commands that audit models for shortcuts."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastdime.terminal import interrupt_later, print_rows, progress_of

if TYPE_CHECKING:
    from fastdime.audit.request import AuditRequest
    from fastdime.audit.schema import Audit

CONDITION_MET = 1
Json = Annotated[bool, typer.Option("--json", help="Print audit.json.")]


def audit(
    context: typer.Context,
    data: Annotated[Path, typer.Option(help="Table (CSV with a column path) with labels of the shortcut.")],
    out: Annotated[Path, typer.Option(help="Folder of the audit; run the same command again to go on.")],
    shortcut: Annotated[
        list[str], typer.Option(help="Column of the shortcut, or COLUMN=BUNDLE; may be given again.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(help="What is audited, or NAME=WHAT: folder, file, module:function, CSV. Again: more."),
    ] = None,
    bundle: Annotated[
        str | None, typer.Option(help="Denoiser and guide of the shortcut: see `fastdime bundle list`.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Column of the task, for AUROC and strata.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Column of patients: `patient` if there; or none.")
    ] = None,
    by: Annotated[str, typer.Option(help="Columns to tell apart, with commas between.")] = "",
    where: Annotated[str | None, typer.Option(help="COLUMN=VALUE: only such rows, e.g. split=test.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many images.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder that paths in the table are relative to; that of the table.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Resize the shorter side to this and crop.")] = None,
    convert_channels: Annotated[
        bool, typer.Option(help="Turn gray into colour or back where needed.")
    ] = False,
    method: Annotated[str, typer.Option(help="See `fastdime methods`.")] = "fastdime-null",
    change: Annotated[list[str] | None, typer.Option("--set", help="A setting, e.g. --set tau=40.")] = None,
    oracle: Annotated[
        str | None, typer.Option(help="Says whether the shortcut went or came; the bundle's own.")
    ] = None,
    controls: Annotated[
        int | None, typer.Option(min=0, help="Images with null edit and second seed; all.")
    ] = None,
    margin: Annotated[float, typer.Option(help="An effect below it is of no matter.")] = 0.05,
    alpha: Annotated[float, typer.Option(help="Share of false claims.")] = 0.05,
    fail_if: Annotated[
        list[str] | None, typer.Option(help="Exit with 1 if met, e.g. effect>0.1 or verdict==relies.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all noise and resampling.")] = 0,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images at a time.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Json = False,
) -> None:
    """Does a model lean on a shortcut, how much, and is that proven?"""
    with interrupt_later():
        from fastdime.audit.audit import audit as run
        from fastdime.audit.conditions import failures, parse_condition
        from fastdime.audit.models import parse_models
        from fastdime.audit.output import write_audit

    conditions = [parse_condition(text) for text in fail_if or []]
    models = parse_models(model or [])
    found = run(_request(context), models, out, progress_of)
    path = write_audit(found, out)
    if as_json:
        print(found.audit.model_dump_json())
    else:
        _print(found.audit, out, path)
    if met := failures(conditions, found.audit.rows):
        for sentence in met:
            print(f"fastdime: {sentence}", file=sys.stderr)
        raise typer.Exit(CONDITION_MET)


def _request(context: typer.Context) -> "AuditRequest":
    from fastdime.audit.request import AuditRequest, parse_shortcuts
    from fastdime.configs import changes, checked
    from fastdime.counterfactuals.methods import settings_for
    from fastdime.errors import InputError
    from fastdime.pipeline.models import chosen_device

    given = {name: value for name, value in context.params.items() if name in AuditRequest.model_fields}
    given["by"] = tuple(name for name in given["by"].split(",") if name)
    given["shortcuts"] = parse_shortcuts(context.params["shortcut"], context.params["bundle"])
    given["convert"] = context.params["convert_channels"]
    given["settings"] = changes(context.params["change"] or [], type(settings_for(given["method"])))
    given["device"] = chosen_device(given["device"])
    return checked(AuditRequest, given, "audit", InputError)


def _print(found: "Audit", out: Path, path: Path) -> None:
    from fastdime.audit.output import TABLE, table_row
    from fastdime.audit.schema import PICTURES_FILE

    if not found.rows:
        print(f"Pictures are made and listed in {out / PICTURES_FILE}. Next: --model, or a CSV of answers.")
        return
    print_rows([table_row(row) for row in found.rows], TABLE, left=("model", "output", "shortcut"))
    print()
    for row in found.rows:
        print(f"{row.model}, {row.output}, {row.shortcut}: {row.verdict}: {row.reason}.")
    for warning in found.warnings:
        print(f"Warning: {warning}.")
    print(f"\nEverything is in {path}. Next: fastdime report {out}")
