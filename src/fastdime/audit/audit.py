"""The audit: make the pictures, ask the models, weigh the answers, write everything down."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from fastdime import __version__
from fastdime.audit.answers import EDIT, KINDS, Answers, Scope, read_answers
from fastdime.audit.effects import Effects, Numbers
from fastdime.audit.generator import Oracle, collateral, compliance, complied, self_tests
from fastdime.audit.models import Audited
from fastdime.audit.opening import check_out, labelled, named, open_data, open_models
from fastdime.audit.pictures import PLACEBO, Album, Show, Studio, unseen
from fastdime.audit.request import AuditRequest
from fastdime.audit.schema import Audit, Generator
from fastdime.audit.weighing import Rules, Subjects, Weighed, adjusted
from fastdime.bundles import Bundle, load_bundle
from fastdime.classifiers.load import load_classifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.data.splits import NONE, groups_of, has
from fastdime.data.table import PATIENT, Table, read_table
from fastdime.errors import DataError, expected
from fastdime.pipeline.options import RunOptions, moved, network_of, run_options
from fastdime.runs import file_stem
from fastdime.weights import weights_hash

CSV = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class Asked:
    """One shortcut: its pictures if they were made here, who its images are, and each model's answers."""

    column: str
    album: Album | None
    subjects: Subjects
    shortcut: Numbers
    ids: tuple[str, ...]
    generator: Generator
    warnings: tuple[str, ...]
    answers: dict[str, Answers] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """An audit with what its tables are made of."""

    audit: Audit
    asked: tuple[Asked, ...]
    effects: dict[tuple[str, str, str], Effects]  # by shortcut, model and output


def audit(request: AuditRequest, models: Mapping[str, object], out: str | Path, show: Show = unseen) -> Found:
    """Audit models for shortcuts; called again, it goes on where it stopped.

    Args:
        models: by name: what `open_audited` opens, or a table of answers.
        out: folder for all pictures; the caller writes the results there, see `fastdime.audit.output`.
        show: opens a display of progress for each part of the work.
    """
    check_out(Path(out), request)
    known = read_table(request.data, root=request.root, group=named(request.group)).ids
    return audit_table(open_data(request), request, models, Path(out), show, known)


def audit_table(
    table: Table,
    request: AuditRequest,
    models: Mapping[str, object],
    out: Path,
    show: Show,
    known: Sequence[str] = (),
) -> Found:
    """Audit models on a table that is open already.

    Args:
        known: ids of images that are left out, and may be in a table of answers all the same.
    """
    loaded = {source: load_bundle(source) for source in request.shortcuts.values() if source is not None}
    bundles = {
        column: None if source is None else loaded[source] for column, source in request.shortcuts.items()
    }
    # Pictures take long: what cannot be asked is told before any is made.
    known_rows = {column: labelled(table, column) for column in bundles}
    asked = open_models(models, bundles)
    shortcuts = []
    for column, bundle in bundles.items():
        chosen, warnings = known_rows[column]
        if bundle is None:
            shortcuts.append(_without_pictures(chosen, column, request, warnings))
        else:
            shortcuts.append(_with_pictures(chosen, column, bundle, request, out, warnings, show))
    for name in models:
        for each in shortcuts:
            scope = Scope(each.column, len(shortcuts) > 1, {*table.ids, *known})
            each.answers[name] = _answers(asked[name, each.column], each, scope, show)
    return weigh_all(request, len(table), shortcuts)


def _subjects(table: Table, request: AuditRequest, found: Numbers | None) -> Subjects:
    grouped = request.group != NONE and (request.group is not None or has(table, PATIENT))
    return Subjects(
        groups=list(groups_of(table, request.group)) if grouped else None,
        task=np.array(table.binary(request.task)) if request.task else None,
        complied=found,
        by={column: table.text(column) for column in request.by},
    )


def _without_pictures(table: Table, column: str, request: AuditRequest, warnings: list[str]) -> Asked:
    shown = np.array(table.binary(column))
    card = _card(column, None, request, {}, shown)
    warnings.append(f"{column}: no bundle, so compliance, collateral change and self-tests are not known")
    return Asked(column, None, _subjects(table, request, None), shown, table.ids, card, tuple(warnings))


def _with_pictures(
    table: Table,
    column: str,
    bundle: Bundle,
    request: AuditRequest,
    out: Path,
    warnings: list[str],
    show: Show,
) -> Asked:
    explainer, oracle = explainer_of(bundle, request), _oracle(request, bundle)
    folder = out / file_stem(column)
    names = {"method": request.method, "denoiser": bundle.name, "classifier": bundle.name}
    controls = len(table) if request.controls is None else min(request.controls, len(table))
    studio = Studio(table, column, explainer, names, folder, run_options_of(request), controls, show)
    album = studio.make()
    table = _kept(table, album.ids)
    shown = np.array(table.binary(column))
    found = complied(album, oracle, shown)
    subjects = _subjects(table, request, found)
    groups = None if subjects.groups is None else list(subjects.groups)
    others = {name: bundle.oracle(name) for name in bundle.oracles if name not in ("shortcut", "complete")}
    card = _card(column, bundle.name, request, explainer.resolved.model_dump(mode="json"), shown).model_copy(
        update={
            "failed": len(album.pairs.failed),
            "compliance": compliance(oracle, found, shown, groups),
            "collateral": collateral(album, others, groups),
            "self_tests": self_tests(album, shown),
        }
    )
    return Asked(column, album, subjects, shown, album.ids, card, (*warnings, *_doubts(card, album)))


def explainer_of(bundle: Bundle, request: AuditRequest) -> Explainer:
    """Return what makes the edits, on the device of the request."""
    explainer = Explainer.from_bundle(bundle, request.method, **request.settings)
    return moved(replace(explainer, seed=request.seed), request.device)


def run_options_of(request: AuditRequest) -> RunOptions:
    """Return how the images of an audit are read and worked through."""
    size = "auto" if request.batch_size is None else request.batch_size
    return run_options(batch_size=size, size=request.size, convert=request.convert, root=request.root)


def _kept(table: Table, ids: Sequence[str]) -> Table:
    """Bring the rows of a table into the order of the images that have an edit."""
    rows = {name: row for row, name in enumerate(table.ids)}
    return table.take(rows[name] for name in ids)


def _oracle(request: AuditRequest, bundle: Bundle) -> Oracle:
    if request.oracle is not None:
        other = load_classifier(request.oracle)
        guides, judges = (network_of(each) for each in (bundle.classifier, other))
        same = guides is not None and judges is not None and weights_hash(guides) == weights_hash(judges)
        return Oracle(request.oracle, other, independent=not same)
    if "shortcut" in bundle.oracles:
        return Oracle(f"{bundle.name}/shortcut", bundle.oracle("shortcut"), True)
    return Oracle(f"{bundle.name}, the guide itself", bundle.classifier, False)


def _card(
    column: str, bundle: str | None, request: AuditRequest, settings: dict[str, object], shown: Numbers
) -> Generator:
    return Generator(
        shortcut=column,
        bundle=bundle,
        method=request.method if bundle else None,
        settings=settings,
        folder=file_stem(column),
        images=len(shown),
        removals=int((shown == 1).sum()),
        additions=int((shown == 0).sum()),
        failed=0,
        compliance=None,
        collateral={},
        self_tests=(),
    )


def _doubts(card: Generator, album: Album) -> Iterator[str]:
    """Say what should make one careful about the edits."""
    name = card.shortcut
    if album.pairs.failed:
        yield f"{name}: {len(album.pairs.failed)} images could not be edited, such as {album.pairs.failed[0]}"
    if card.compliance is not None and not card.compliance.independent:
        yield f"{name}: no independent oracle; whether the shortcut went or came is the guide's own word"
    for direction in ("removed", "added"):
        share = getattr(card.compliance, direction).value if card.compliance else None
        if share is not None and share < 0.8:
            yield f"{name}: the oracle sees the shortcut {direction} in only {share:.0%} of the images"
    for test in card.self_tests:
        if not test.passed:
            yield f"{name}: self-test {test.name!r} failed: {test.text}: {test.value:g}, limit {test.limit:g}"


def _answers(model: Audited | Path, each: Asked, scope: Scope, show: Show) -> Answers:
    if isinstance(model, Path):
        return read_answers(model, each.ids, scope=scope)
    assert each.album is not None
    return ask_album(model, each.album, show)


def ask_album(model: Audited, album: Album, show: Show) -> Answers:
    """Ask a model about all pictures."""
    rows = {kind: album.rows_with(kind) for kind in KINDS}
    total, done = sum(map(len, rows.values())), 0
    logits = {}
    with show(f"answers of {model.name}") as progress:
        for kind in (kind for kind in KINDS if rows[kind]):
            found = np.full((len(album.ids), len(model.outputs)), np.nan)
            for some, x in album.batches(kind):
                found[some] = model.ask(x)
                done += len(some)
                progress(done, total)
            logits[kind] = found
    return Answers(album.ids, model.outputs, logits)


def weigh_all(request: AuditRequest, images: int, shortcuts: Sequence[Asked]) -> Found:
    """Weigh every output of every model for every shortcut; all of them count as questions."""
    rules = Rules(request.margin, request.alpha, request.seed)
    weighed: dict[tuple[str, str, str], Weighed] = {}
    warnings = [warning for each in shortcuts for warning in each.warnings]
    for each in shortcuts:
        for model, answers in each.answers.items():
            _check_answers(model, answers)
            warnings += _gaps(f"{each.column}, {model}", answers)
            for number, output in enumerate(answers.outputs):
                effects = Effects.of(answers, number, each.shortcut.tolist())
                weighed[each.column, model, output] = Weighed.of(effects, each.subjects, rules)
    chances = adjusted(list(weighed.values()))
    rows = [one.row(*key, p) for (key, one), p in zip(weighed.items(), chances, strict=True)]
    result = Audit(
        versions={"fastdime": __version__, "torch": str(torch.__version__)},
        data=os.fspath(request.data),
        images=images,
        task=request.task,
        group=named(request.group) or (PATIENT if any(a.subjects.groups for a in shortcuts) else None),
        by=request.by,
        margin=request.margin,
        alpha=request.alpha,
        seed=request.seed,
        generators=tuple(each.generator for each in shortcuts),
        rows=tuple(rows),
        warnings=tuple(warnings),
    )
    return Found(result, tuple(shortcuts), {key: one.effects for key, one in weighed.items()})


def _check_answers(model: str, answers: Answers) -> None:
    if EDIT not in answers.logits:
        raise DataError(expected(f"answers of {model}", "some about counterfactuals", "none"))


def _gaps(place: str, answers: Answers) -> Iterator[str]:
    """Say which pictures a model was not asked about."""
    lacks = {kind: np.isnan(found[:, 0]) for kind, found in answers.logits.items()}
    edit, total = lacks[EDIT], len(answers.ids)
    placebo = lacks.get(PLACEBO, np.ones_like(edit))
    if edit.any():
        yield f"{place}: {edit.sum()} of {total} images have no answer about their edit and are left out"
    if placebo.all():
        yield f"{place}: no answers about placebo edits, so the effect is the whole change"
    elif (placebo & ~edit).any():
        count = (placebo & ~edit).sum()
        yield f"{place}: {count} of {total} images have no answer about their placebo, and no effect"
