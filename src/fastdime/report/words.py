"""Numbers and verdicts as a person reads them."""

from dataclasses import dataclass

from fastdime.audit.schema import Audit, Interval, Row
from fastdime.audit.verdict import Kind

NOTHING, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
ORDER: tuple[Kind, ...] = ("relies", "cannot tell", "no reliance above m")  # what matters most comes first


@dataclass(frozen=True)
class Answer:
    """One verdict: a word and a symbol, so that nothing hangs on its colour, what it says, and why."""

    style: str
    symbol: str
    word: str
    claim: str
    reason: str


def decimal(value: float | None, digits: int = 3) -> str:
    """Write a number with fixed digits.

    >>> decimal(0.04567), decimal(-0.0001), decimal(-0.5) == f"{MINUS}0.500"
    ('0.046', '0.000', True)
    """
    if value is None:
        return NOTHING
    text = f"{abs(value):.{digits}f}"
    return f"{MINUS}{text}" if value < 0 and float(text) else text


def brief(value: float | None) -> str:
    """Write a number as short as it can be read.

    >>> brief(0.05), brief(1234.0)
    ('0.05', '1234')
    """
    return NOTHING if value is None else f"{value:.4g}".replace("-", MINUS)


def ends(found: Interval) -> str:
    """Write the interval alone.

    >>> ends(Interval(value=0.5, low=0.4, high=0.6, n=9, clusters=9))
    '0.400 to 0.600'
    """
    if found.low is None or found.high is None:
        return ""
    return f"{decimal(found.low)} to {decimal(found.high)}"


def with_ends(found: Interval) -> str:
    """Write a mean and its interval."""
    between = ends(found)
    return f"{decimal(found.value)} ({between})" if between else decimal(found.value)


def percent(value: float | None) -> str:
    """Write a share.

    >>> percent(0.984)
    '98 %'
    """
    return NOTHING if value is None else f"{100 * value:.0f} %"


def shares(found: Interval) -> str:
    """Write a share with its interval, and of how many images."""
    if found.value is None:
        return "no such images"
    between = "" if found.low is None else f" ({percent(found.low)} to {percent(found.high)})"
    return f"{percent(found.value)}{between} of {found.n}"


def chance(p: float | None) -> str:
    """Write a p-value.

    >>> chance(0.03), chance(0.00001)
    ('0.030', '< 0.0001')
    """
    if p is None:
        return NOTHING
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.001 else f"{p:.3f}"


def counted(n: int, one: str, more: str | None = None) -> str:
    """Write how many there are.

    >>> counted(1, "image"), counted(3, "image"), counted(0, "entry", "entries")
    ('1 image', '3 images', '0 entries')
    """
    return f"{n} {one if n == 1 else more or one + 's'}"


def asked_about(row: Row, audit: Audit) -> str:
    """Name a model, and its output if there are others."""
    outputs = {other.output for other in audit.rows if other.model == row.model}
    return f"{row.model}, {row.output}" if len(outputs) > 1 else row.model


def word_of(kind: Kind, margin: float) -> tuple[str, str, str]:
    """Return the style, symbol and word of a verdict."""
    if kind == "relies":
        return "relies", "!", "Relies"
    if kind == "no reliance above m":
        return "none", "✓", f"No reliance above {margin:g}"
    return "unknown", "?", "Cannot tell"


def answer(row: Row, audit: Audit) -> Answer:
    """Say what was found about one output of one model."""
    who = asked_about(row, audit)
    claims = {
        "relies": f"{who} relies on {row.shortcut}",
        "no reliance above m": f"{who} does not rely on {row.shortcut} by more than {audit.margin:g}",
        "cannot tell": f"It cannot be told whether {who} relies on {row.shortcut}",
    }
    return Answer(*word_of(row.verdict, audit.margin), claims[row.verdict], row.reason)


def tally(audit: Audit) -> str:
    """Count the verdicts in one line; a single one needs no count."""
    if len(audit.rows) < 2:
        return ""
    kinds = [row.verdict for row in audit.rows]
    parts = [
        f"{word_of(kind, audit.margin)[2].lower()}: {kinds.count(kind)}" for kind in ORDER if kind in kinds
    ]
    return f"{len(kinds)} questions. {'; '.join(parts).capitalize()}."
