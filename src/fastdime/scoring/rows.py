"""One line of the table of scores."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

NAN = math.nan
COLUMNS = ("metric", "value", "95 %", "n", "pairs", "network")
TEXTS = ("metric", "95 %", "pairs", "network")


@dataclass(frozen=True)
class Row:
    """A metric with its interval, and all that one needs to read it.

    Attributes:
        value: NaN when there is none; then `warning` says why.
        low, high: 95 % interval; NaN when there is none.
        n: pairs that it is taken over.
        subset: which pairs these are.
        network: where the features or answers come from; "" for pixels alone.
        more: further numbers that belong to it.
    """

    value: float
    low: float = NAN
    high: float = NAN
    n: int = 0
    subset: str = ""
    network: str = ""
    warning: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    def noted(self, note: str) -> "Row":
        """Add to the warning."""
        return replace(self, warning="; ".join(filter(None, [self.warning, note])))

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold: null for NaN and for what is blank."""
        told = {name: as_json(getattr(self, name)) for name in ("value", "low", "high")}
        words = {name: getattr(self, name) or None for name in ("subset", "network", "warning")}
        return told | {"n": self.n} | words | {name: as_json(value) for name, value in self.more.items()}

    def told(self, metric: str) -> dict[str, object]:
        """Return the cells of the printed table."""
        cells = (metric, self.shown, self.interval, self.n, self.subset or None, self.network or None)
        return dict(zip(COLUMNS, cells, strict=True))

    @property
    def shown(self) -> float | None:
        """The value, or None."""
        return None if math.isnan(self.value) else self.value

    @property
    def interval(self) -> str | None:
        """The interval as text, or the spread of repetitions, or None."""
        spread = self.more.get("spread", NAN)
        return interval(self.low, self.high) or (None if math.isnan(spread) else f"spread {spread:.2g}")


def interval(low: float, high: float) -> str | None:
    """Write an interval.

    >>> interval(0.25, 1)
    '0.25 to 1'
    """
    return None if math.isnan(low) or math.isnan(high) else f"{low:.4g} to {high:.4g}"


def missing(reason: object, network: str = "") -> Row:
    """Return the row of a metric that cannot be computed."""
    return Row(NAN, network=network, warning=" ".join(str(reason).split()))


def as_json(value: Any) -> Any:
    """Return None for numbers that JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
