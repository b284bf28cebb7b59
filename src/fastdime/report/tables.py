"""The tables of a report: cells with a text for people and a key for sorting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastdime.audit.schema import Areas, Audit, Generator, Interval, Row, Stratum
from fastdime.report.words import NOTHING, brief, chance, decimal, ends, percent, shares, with_ends, word_of

NAMES = ("Shortcut", "Model", "Output")
DEEPEST = 3  # of settings in settings; what lies deeper is shown as it is


@dataclass(frozen=True)
class Cell:
    """What is shown, a smaller line below it, and what it is sorted by."""

    text: str
    below: str = ""
    key: float | str = ""
    style: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under titles; a column is of numbers where `numeric` says so."""

    caption: str
    titles: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers."""
        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.titles)
        return tuple(any(isinstance(cell.key, float) for cell in column) for column in columns)


@dataclass(frozen=True)
class Matrix:
    """Verdicts of models (rows) about shortcuts (columns)."""

    shortcuts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


Make = Callable[[Row], Cell]


def effects_table(audit: Audit) -> Table:
    """All rows with the effect and its controls."""
    columns: dict[str, Make] = {
        **_who(audit),
        "Verdict": lambda row: replace(verdict_cell(row, audit.margin), below=""),
        "Effect": lambda row: _interval(row.effect, "strong"),
        "MAD": lambda row: _interval(row.mad),
        "MD (s=1)": lambda row: _interval(row.md_with),
        "MD (s=0)": lambda row: _interval(row.md_without),
        "Placebo": lambda row: _interval(row.placebo),
        "Null edit": lambda row: _interval(row.null),
        "Second seed": lambda row: _interval(row.reseed),
        "Compliers": lambda row: _interval(row.complier),
        "True effect": lambda row: Cell(NOTHING) if row.truth is None else _interval(row.truth.effect),
        "Images": lambda row: _whole(row.effect.n),
        "Patients": lambda row: (
            Cell(NOTHING) if row.effect.clusters == row.effect.n else _whole(row.effect.clusters)
        ),
    }
    return _made("Effects and controls", columns, audit.rows)


def tests_table(audit: Audit) -> Table:
    """All rows with p-values, sizes, decisions and AUROC."""
    columns: dict[str, Make] = {
        **_who(audit),
        "p": lambda row: _p(row.p),
        "Adjusted p": lambda row: _p(row.p_adjusted),
        "p beyond margin": lambda row: _p(row.p_equivalence),
        "d_z": lambda row: _number(row.size),
        "Detectable": lambda row: _number(row.detectable),
        "Log-odds": lambda row: _interval(row.logit),
        "Log-odds (s=1)": lambda row: _interval(row.logit_with),
        "Log-odds (s=0)": lambda row: _interval(row.logit_without),
        "Decisions": lambda row: Cell(
            f"{row.flips.to_one} to 1, {row.flips.to_zero} to 0",
            f"p = {chance(row.flips.p)}",
            float(row.flips.to_one + row.flips.to_zero),
        ),
        "AUROC": lambda row: _areas(row.auroc),
    }
    return _made("Tests, sizes and decisions", columns, audit.rows)


def _who(audit: Audit) -> dict[str, Make]:
    """Columns that tell the rows of an audit apart; all of them for a single row."""
    names = _several(audit) or NAMES
    return {name: partial(_named, name.lower()) for name in names}


def _named(name: str, row: Row) -> Cell:
    return _text(getattr(row, name))


def strata_table(audit: Audit) -> Table | None:
    """Parts of the images of each row; None when nothing was told apart."""
    who = _who(audit) if _several(audit) else {}
    columns: dict[str, Callable[[Stratum], Cell]] = {
        "By": lambda part: _text(part.by),
        "Value": lambda part: _text(part.value),
        "Images": lambda part: _whole(part.effect.n),
        "Effect": lambda part: _interval(part.effect, "strong"),
        "MAD": lambda part: _interval(part.mad),
        "MD": lambda part: _interval(part.md),
    }
    rows = tuple(
        (*(make(row) for make in who.values()), *(make(part) for make in columns.values()))
        for row in audit.rows
        for part in row.strata
    )
    return Table("Effects in parts of the images", (*who, *columns), rows) if rows else None


def _several(audit: Audit) -> list[str]:
    """Name what differs between the rows of an audit."""
    return [name for name in NAMES if len({getattr(row, name.lower()) for row in audit.rows}) > 1]


def matrix(audit: Audit) -> Matrix | None:
    """Models by shortcuts; None unless there are several of both."""
    shortcuts = tuple(dict.fromkeys(row.shortcut for row in audit.rows))
    models = tuple(dict.fromkeys((row.model, row.output) for row in audit.rows))
    if len(shortcuts) < 2 or len(models) < 2:
        return None
    found = {(row.model, row.output, row.shortcut): verdict_cell(row, audit.margin) for row in audit.rows}
    several = len({model for model, _ in models}) < len(models)
    rows = tuple(
        (
            f"{model}, {output}" if several else model,
            tuple(found.get((model, output, name)) for name in shortcuts),
        )
        for model, output in models
    )
    return Matrix(shortcuts, rows)


def verdict_cell(row: Row, margin: float) -> Cell:
    """Symbol, word and effect of a verdict."""
    style, symbol, word = word_of(row.verdict, margin)
    return Cell(f"{symbol} {word}", f"effect {decimal(row.effect.value)}", word, style)


def trust_table(generator: Generator) -> Table:
    """Whether the shortcut went or came, and what else changed."""
    rows: list[tuple[Cell, ...]] = []
    if (found := generator.compliance) is not None:
        judge = f"by {found.oracle}" + ("" if found.independent else ", which guided the edits itself")
        rows += [
            (_text("Shortcut removed"), _share(found.removed), _text(judge)),
            (_text("Shortcut added"), _share(found.added), _text(judge)),
        ]
    for name, interval in generator.collateral.items():
        what = COLLATERAL.get(name, f"mean absolute change of {name.replace('_', ' ')}")
        rows.append((_text(name.replace("_", " ").capitalize()), _interval(interval), _text(what)))
    return Table("Compliance and collateral change", ("What", "Value", "Meaning"), tuple(rows))


COLLATERAL = {
    "change": "mean absolute change of a pixel, on the scale from 0 to 1",
    "changed_area": "share of pixels that changed",
    "change_outside_mask": "mean absolute change of a pixel outside the mask of the edit",
    "change_outside_truth": "mean absolute change of a pixel where the exact counterfactual has none",
}


def self_test_table(generator: Generator) -> Table | None:
    """The tests of the generator itself; None without any."""
    rows = tuple(
        (
            _text(test.name),
            Cell("✓ Passed" if test.passed else "! Failed", "", str(test.passed), _style(test.passed)),
            _number(test.value),
            _number(test.limit),
            _text(test.text),
        )
        for test in generator.self_tests
    )
    return Table("Self-tests", ("Test", "Result", "Value", "Limit", "What is tested"), rows) if rows else None


def settings_rows(settings: Any, name: str = "", depth: int = 0) -> list[tuple[str, str]]:
    """List the leaves of settings by dotted name.

    >>> settings_rows({"a": {"b": 1}, "c": None})
    [('a.b', '1'), ('c', 'none')]
    """
    if isinstance(settings, dict) and settings and depth < DEEPEST:
        parts = [
            settings_rows(value, f"{name}.{key}" if name else str(key), depth + 1)
            for key, value in settings.items()
        ]
        return [pair for part in parts for pair in part]
    return [(name, "none" if settings is None else str(settings))]


def _made(caption: str, columns: dict[str, Make], rows: Sequence[Row]) -> Table:
    cells = tuple(tuple(make(row) for make in columns.values()) for row in rows)
    return _without_blanks(Table(caption, tuple(columns), cells))


def _without_blanks(table: Table) -> Table:
    """Leave out columns in which nothing stands."""
    kept = [i for i in range(len(table.titles)) if any(row[i].text != NOTHING for row in table.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return Table(table.caption, tuple(table.titles[i] for i in kept), rows)


def _text(value: str) -> Cell:
    return Cell(value, key=value)


def _whole(value: int) -> Cell:
    return Cell(str(value), key=float(value))


def _number(value: float | None) -> Cell:
    return Cell(brief(value), key=_key(value))


def _p(value: float | None) -> Cell:
    return Cell(chance(value), key=_key(value))


def _interval(found: Interval, style: str = "") -> Cell:
    return Cell(decimal(found.value), ends(found), _key(found.value), style)


def _share(found: Interval) -> Cell:
    return Cell(shares(found), key=_key(found.value))


def _areas(found: Areas | None) -> Cell:
    if found is None:
        return Cell(NOTHING)
    below = f"{with_ends(found.change)}, p = {chance(found.p)}"
    return Cell(f"{decimal(found.before)} → {decimal(found.after)}", below, _key(found.change.value))


def _key(value: float | None) -> float | str:
    return "" if value is None else float(value)


def _style(passed: bool) -> str:
    return "none" if passed else "relies"


def summary_table(numbers: dict[str, Any]) -> Table:
    """What a run came to, one number a row."""
    rows = tuple((_text(name), Cell(_told(name, value))) for name, value in numbers.items())
    return Table("Summary", ("What", "Value"), rows)


def _told(name: str, value: Any) -> str:
    if isinstance(value, float):
        return percent(value) if name in ("Reached their target", "Changed area") else brief(value)
    return NOTHING if value is None else str(value)
