"""Settings to try: some values of each, in every combination."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from fastdime.configs import changes, checked
from fastdime.counterfactuals.settings import Settings
from fastdime.errors import InputError, expected

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the strength
LEVELS = (2 / 3, 1.0, 4 / 3)  # of the start level
Grid = Mapping[str, Sequence[Any]]


def combinations(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield every combination of values.

    >>> list(combinations({"tau": [20, 40], "l1": [0.1]}))
    [{'tau': 20, 'l1': 0.1}, {'tau': 40, 'l1': 0.1}]
    """
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def default_grid(settings: Settings) -> Grid:
    """Return strengths around the middle rung of the ladder, and start levels if the method has them.

    >>> from fastdime.counterfactuals.methods import settings_for
    >>> default_grid(settings_for("fastdime"))
    {'scales': [[2.5], [5.0], [10.0], [20.0], [40.0]], 'tau': [40, 60, 80]}
    """
    middle = settings.scales[len(settings.scales) // 2]
    grid: dict[str, list[Any]] = {"scales": _different([middle * factor] for factor in FACTORS)}
    tau, steps = (getattr(settings, name, None) for name in ("tau", "steps"))
    if tau is not None:
        levels = _different(max(1, round(tau * factor)) for factor in LEVELS)
        grid["tau"] = [level for level in levels if steps is None or level <= steps] or [tau]
    return grid


def parse_grid(items: Iterable[str], model: type[Settings]) -> Grid:
    """Parse NAME=V1,V2,... items; a value that is a list has colons inside.

    >>> from fastdime.counterfactuals.settings import GuidedSettings
    >>> parse_grid(["tau=20,40", "scales=5,10:20"], GuidedSettings)
    {'tau': [20, 40], 'scales': [[5], [10, 20]]}
    """
    grid: dict[str, list[Any]] = {}
    for item in items:
        name, _, text = item.partition("=")
        parts = text.split(",")
        if not (name and all(parts)):
            raise InputError(expected("--grid", "NAME=VALUE,VALUE,...", repr(item)))
        if name in grid:
            remedy = "write all its values after one --grid"
            raise InputError(expected("--grid", "each setting once", f"{name!r} twice", remedy))
        words = [f"{name}={part.replace(':', ',')}" for part in parts]
        grid[name] = _different(changes([word], model, "--grid")[name] for word in words)
    return grid


def check_grid(grid: Grid, settings: Settings) -> None:
    """Refuse a grid without a combination, with an unknown setting, or with a value it cannot have."""
    if not grid or not all(grid.values()):
        empty = next((repr(name) for name, values in grid.items() if not values), "any setting")
        raise InputError(expected("grid", "a value or more for each setting", f"none for {empty}"))
    for name, values in grid.items():
        for value in values:
            changed(settings, {name: value})


def changed(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return settings with some changed, and checked."""
    return checked(type(settings), {**settings.model_dump(), **values}, "grid", InputError)


def spelled(value: Any) -> str:
    """Write a value as after --grid.

    >>> spelled([10.0, 20.0]), spelled(0.05), spelled(None)
    ('10:20', '0.05', 'none')
    """
    if isinstance(value, list | tuple):
        return ":".join(map(spelled, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _different(values: Iterable[Any]) -> list[Any]:
    kept: list[Any] = []  # a set would not take lists
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept
