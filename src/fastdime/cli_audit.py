"""Commands that audit models for shortcuts."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastdime.cli_options import Config
from fastdime.errors import InputError, expected, unknown
from fastdime.terminal import interrupt_later, print_rows, progress_of

if TYPE_CHECKING:
    from fastdime.audit.curate import Rule
    from fastdime.audit.request import AuditRequest
    from fastdime.audit.schema import Audit

CONDITION_MET = 1
PAPER = ("k", "auroc_k", "auroc_u", "auroc_uc", "mad", "md1", "md0")
MENDED = ("model", "verdict", "auroc_u", "mad", "md1", "md0", "effect", "mad_true", "effect_true")
STUDY = (*PAPER, "effect", "mad_true", "md1_true", "md0_true", "effect_true", "ideal_mad")
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Out = Annotated[Path, typer.Option(help="Folder for everything; run the same command again to go on.")]
Bundle = Annotated[
    str | None, typer.Option(help="Denoiser and guide of the shortcut: see `fastdime bundle list`.")
]
Group = Annotated[str | None, typer.Option(help="Column of patients: `patient` if there; or none.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many images.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder that paths in the table are relative to; that of the table.")
]
Size = Annotated[int | None, typer.Option(help="Resize the shorter side to this and crop.")]
Convert = Annotated[bool, typer.Option(help="Turn gray into colour or back where needed.")]
Method = Annotated[str, typer.Option(help="See `fastdime methods`.")]
Change = Annotated[list[str] | None, typer.Option("--set", help="A setting, e.g. --set tau=40.")]
Oracle = Annotated[str | None, typer.Option(help="Says whether the shortcut went or came; the bundle's own.")]
Controls = Annotated[int | None, typer.Option(min=0, help="Images with null edit and second seed.")]
Margin = Annotated[float, typer.Option(help="An effect below it is of no matter.")]
Alpha = Annotated[float, typer.Option(help="Share of false claims.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all noise and resampling.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Images at a time.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]


def audit(
    context: typer.Context,
    data: Annotated[Path, typer.Option(help="Table (CSV with a column path) with labels of the shortcut.")],
    out: Out,
    shortcut: Annotated[
        list[str], typer.Option(help="Column of the shortcut, or COLUMN=BUNDLE; may be given again.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(help="What is audited, or NAME=WHAT: folder, file, module:function, CSV. Again: more."),
    ] = None,
    bundle: Bundle = None,
    task: Annotated[str | None, typer.Option(help="Column of the task, for AUROC and strata.")] = None,
    group: Group = None,
    by: Annotated[str, typer.Option(help="Columns to tell apart, with commas between.")] = "",
    where: Annotated[str | None, typer.Option(help="COLUMN=VALUE: only such rows, e.g. split=test.")] = None,
    limit: Limit = None,
    root: Root = None,
    size: Size = None,
    convert_channels: Convert = False,
    method: Annotated[
        str | None, typer.Option(help="See `fastdime methods`.", show_default="fastdime-null")
    ] = None,
    change: Change = None,
    config: Config = None,
    oracle: Oracle = None,
    controls: Controls = None,
    pictures: Annotated[
        int, typer.Option(min=0, help="Images with SmoothGrad (and some with their path), for the report.")
    ] = 8,
    margin: Margin = 0.05,
    alpha: Alpha = 0.05,
    fail_if: Annotated[
        list[str] | None, typer.Option(help="Exit with 1 if met, e.g. effect>0.1 or verdict==relies.")
    ] = None,
    seed: Seed = 0,
    batch_size: BatchSize = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Does a model lean on a shortcut, how much, and is that proven?"""
    with interrupt_later():
        from fastdime.audit.audit import audit as run
        from fastdime.audit.conditions import failures, parse_condition
        from fastdime.audit.exhibits import write_exhibits
        from fastdime.audit.models import parse_models
        from fastdime.audit.output import write_audit

    conditions = [parse_condition(text) for text in fail_if or []]
    models, request = parse_models(model or []), _request(context)
    if conditions and not models:
        raise InputError(expected("--fail-if", "a --model to fail for", "none"))
    found = run(request, models, out, progress_of)
    path = write_audit(found, out)
    missing = write_exhibits(found, request, models, out, progress_of)
    print(found.audit.model_dump_json()) if as_json else _print(found.audit, out, path)
    _tell(missing)
    if met := failures(conditions, found.audit.rows):
        _tell(met)
        raise typer.Exit(CONDITION_MET)


def _tell(sentences: list[str]) -> None:
    for sentence in sentences:
        print(f"fastdime: {sentence}", file=sys.stderr)


def validate(
    context: typer.Context,
    phantom: Annotated[str | None, typer.Argument(help="A phantom that has a bundle; or --data.")] = None,
    out: Out = Path("validation"),
    data: Annotated[Path | None, typer.Option(help="Table with labels of task and shortcut.")] = None,
    shortcut: Annotated[list[str] | None, typer.Option(help="Its column of the shortcut.")] = None,
    task: Annotated[str | None, typer.Option(help="Its column of the task.")] = None,
    k: Annotated[str, typer.Option(help="Correlations, with commas between.")] = "100,75,50",
    seeds: Annotated[int, typer.Option(min=1, help="Models of each correlation.")] = 3,
    truth: Annotated[
        bool, typer.Option("--truth", help="Also how often intervals and verdicts are right (phantoms).")
    ] = False,
    n: Annotated[int | None, typer.Option(min=2, help="Images of each D_k; as many as there can be.")] = None,
    n_test: Annotated[int | None, typer.Option(min=2, help="Images of each test_k.")] = None,
    n_balanced: Annotated[int | None, typer.Option(min=4, help="Images of test_u.")] = None,
    rule: Annotated[str, typer.Option(help="Curation: balanced, celeba or medical.")] = "balanced",
    recipe: Annotated[
        str | None, typer.Option(help="Task model: resnet18 or small; small for phantoms.")
    ] = None,
    bundle: Bundle = None,
    group: Group = None,
    root: Root = None,
    size: Size = None,
    convert_channels: Convert = False,
    method: Method = "fastdime-null",
    change: Change = None,
    controls: Controls = None,
    margin: Margin = 0.05,
    alpha: Alpha = 0.05,
    seed: Seed = 0,
    batch_size: BatchSize = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Plant correlations, train on them, and see whether the audit finds them: the paper's study."""
    with interrupt_later():
        from fastdime.report.drop import write_drop
        from fastdime.validation.validate import Wanted, validate_phantom, validate_table

    ks = tuple(_percent(text) for text in k.split(","))
    wanted = Wanted(ks, seeds, (n, n_test, n_balanced), _rule(rule), recipe, truth)
    _check_source(context, truth)
    if phantom is not None:
        context.params |= {"data": Path(phantom), "shortcut": ["shortcut"], "task": "task"}
        told = validate_phantom(phantom, wanted, _request(context), out, progress_of)
    else:
        told = validate_table(wanted, _request(context), out, progress_of)
    figure = write_drop(told["models"], out / "drop.svg")
    if as_json:
        print(json.dumps(told))
        return
    print_rows(told["rows"], [name for name in STUDY if name in told["rows"][0]])
    for name in ("trend", "coverage", "null_false_positive", "power_50"):
        if told.get(name) not in (None, {}):
            print(f"{name.replace('_', ' ')}: {told[name]}")
    for note in told["notes"]:
        print(f"Note: {note}.")
    print(f"\nEverything is in {out}, the paper's figure in {figure}. Next: fastdime report {out / 'audit'}")


def mitigate(
    context: typer.Context,
    phantom: Annotated[str | None, typer.Argument(help="A phantom that has a bundle; or --data.")] = None,
    out: Out = Path("mitigation"),
    data: Annotated[Path | None, typer.Option(help="Table with labels of task and shortcut.")] = None,
    shortcut: Annotated[list[str] | None, typer.Option(help="Its column of the shortcut.")] = None,
    task: Annotated[str | None, typer.Option(help="Its column of the task.")] = None,
    k: Annotated[float, typer.Option(help="Correlation of the training images, in percent.")] = 100,
    ways: Annotated[
        str, typer.Option(help="augment, consistency, balance; with commas between.")
    ] = "augment,consistency",
    partners: Annotated[
        int | None, typer.Option(min=2, help="Counterfactuals of training images to make; all.")
    ] = None,
    n: Annotated[int | None, typer.Option(min=2, help="Training images; as many as there can be.")] = None,
    n_balanced: Annotated[int | None, typer.Option(min=4, help="Images of test_u.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Task model: resnet18 or small; small for phantoms.")
    ] = None,
    bundle: Bundle = None,
    group: Group = None,
    root: Root = None,
    size: Size = None,
    convert_channels: Convert = False,
    method: Method = "fastdime-null",
    change: Change = None,
    controls: Controls = None,
    margin: Margin = 0.05,
    alpha: Alpha = 0.05,
    seed: Seed = 0,
    batch_size: BatchSize = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train again with counterfactuals so that the model leans on the shortcut less, and audit both."""
    with interrupt_later():
        from fastdime.validation.mitigate import Repair, mitigate_phantom, mitigate_table

    _check_source(context)
    names = tuple(name for name in ways.split(",") if name)
    repair = Repair(k, names, partners, n, n_balanced, recipe)
    if phantom is not None:
        context.params |= {"data": Path(phantom), "shortcut": ["shortcut"], "task": "task"}
        told = mitigate_phantom(phantom, repair, _request(context), out, progress_of)
    else:
        told = mitigate_table(repair, _request(context), out, progress_of)
    if as_json:
        print(json.dumps(told))
        return
    print_rows(told["rows"], [name for name in MENDED if name in told["rows"][0]], left=("model", "verdict"))
    for row in told["rows"][1:]:
        if less := row["less"]:
            ends = f"{less['low']:.3f} to {less['high']:.3f}"
            print(f"{row['model']}: moves by {less['value']:.3f} ({ends}) less than plain.")
    for note in told["notes"]:
        print(f"Note: {note}.")
    print(f"\nEverything is in {out}. Next: fastdime report {out / 'audit'}")


def _percent(text: str) -> float:
    from fastdime.data.phantoms.design import parse_k

    found = parse_k(text)
    if found is None:
        raise InputError(expected("--k", "percentages with commas between", repr(text)))
    return found


def _rule(text: str) -> "Rule":
    rules: tuple[Rule, ...] = ("balanced", "celeba", "medical")
    if text not in rules:
        raise InputError(unknown("--rule", text, rules))
    return rules[rules.index(text)]


def _check_source(context: typer.Context, truth: bool = False) -> None:
    """Refuse a command about both a phantom and a table, or about neither."""
    phantom, data, task = (context.params[name] for name in ("phantom", "data", "task"))
    shortcuts = len(context.params["shortcut"] or [])
    command = str(context.info_name)
    if (phantom is None) == (data is None):
        got = "neither" if phantom is None else "both"
        raise InputError(expected(command, "a phantom, or --data with --task and --shortcut", got))
    if data is not None and (task is None or shortcuts != 1):
        got = f"{'no --task' if task is None else '--task'} and {shortcuts} --shortcut"
        raise InputError(expected(f"{command} --data", "--task and one --shortcut", got))
    if phantom is not None and (task is not None or shortcuts):
        remedy = "a phantom has its own columns"
        raise InputError(expected(f"{command} {phantom}", "no --task and no --shortcut", "one", remedy))
    if truth and phantom is None:
        raise InputError(expected("--truth", "a phantom, whose counterfactuals are known", "a table"))


def _request(context: typer.Context) -> "AuditRequest":
    from fastdime.audit.request import METHOD, AuditRequest, parse_shortcuts
    from fastdime.configs import checked
    from fastdime.pipeline.choice import wanted_changes
    from fastdime.pipeline.models import chosen_device

    given = {name: value for name, value in context.params.items() if name in AuditRequest.model_fields}
    config, change = context.params.get("config"), context.params["change"] or []
    given["method"], given["settings"] = wanted_changes(config, given["method"], change, METHOD)
    given["by"] = tuple(name for name in (given.get("by") or "").split(",") if name)
    given["shortcuts"] = parse_shortcuts(context.params["shortcut"], context.params["bundle"])
    given["convert"] = context.params["convert_channels"]
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
