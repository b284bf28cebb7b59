"""Conditions under which a program that runs an audit is to fail, such as `effect>0.1`."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fastdime.audit.schema import Interval, Row
from fastdime.errors import InputError, expected, unknown

OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
INTERVALS = ("effect", "mad", "md_with", "md_without", "logit", "placebo", "complier")
ENDS = ("low", "high")
NUMBERS = ("p", "p_adjusted", "p_equivalence", "size", "detectable")
NAMES = (*INTERVALS, *(f"{name}_{end}" for name in INTERVALS for end in ENDS), *NUMBERS)
VERDICT = "verdict"
VERDICTS = {"relies": "relies", "no-reliance": "no reliance above m", "cannot-tell": "cannot tell"}


@dataclass(frozen=True)
class Condition:
    """One comparison; a row without the number does not meet it."""

    text: str
    meets: Callable[[Row], bool]


def parse_condition(text: str) -> Condition:
    """Read a condition.

    >>> parse_condition("effect > 0.1").text
    'effect > 0.1'

    Raises:
        InputError: it is none; the sentence says what there is.
    """
    shape = re.fullmatch(r"\s*(\w+)\s*(==|>=|<=|>|<)\s*(\S+)\s*", text)
    if shape is None:
        raise InputError(
            expected("--fail-if", "a condition such as effect>0.1 or verdict==relies", repr(text))
        )
    name, sign, value = shape.groups()
    if name == VERDICT:
        return _about_verdict(text, sign, value)
    if name not in NAMES:
        raise InputError(unknown("--fail-if", name, (*NAMES, VERDICT)))
    if sign not in OPERATORS:
        raise InputError(expected("--fail-if", f"{name} with one of {', '.join(OPERATORS)}", repr(text)))
    limit = _limit(value)
    return Condition(text, lambda row: _compared(_number(row, name), OPERATORS[sign], limit))


def failures(conditions: Sequence[Condition], rows: Iterable[Row]) -> list[str]:
    """Say which rows meet which conditions."""
    return [
        f"{row.model}, {row.output}, {row.shortcut}: {condition.text}"
        for row in rows
        for condition in conditions
        if condition.meets(row)
    ]


def _about_verdict(text: str, sign: str, value: str) -> Condition:
    if sign != "==" or value not in VERDICTS:
        wanted = " or ".join(f"verdict=={word}" for word in VERDICTS)
        raise InputError(expected("--fail-if", wanted, repr(text)))
    return Condition(text, lambda row: row.verdict == VERDICTS[value])


def _limit(text: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):  # such a condition would never be met, or always
        raise InputError(expected("--fail-if", "a number after the sign", repr(text)))
    return limit


def _number(row: Row, name: str) -> float | None:
    if name in NUMBERS:
        found: float | None = getattr(row, name)
        return found
    base, _, end = name.rpartition("_")
    if base in INTERVALS and end in ENDS:
        interval: Interval = getattr(row, base)
        return interval.low if end == "low" else interval.high
    value: float | None = getattr(row, name).value
    return value


def _compared(found: float | None, compare: Callable[[float, float], bool], limit: float) -> bool:
    return found is not None and compare(found, limit)
