"""Run an experiment by its name, and write down what came out.

OUT/NAME/table.json    rows, notes and pictures, and the options that they depend on
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastdime.audit.pictures import Show
from fastdime.configs import read_json
from fastdime.errors import InputError, expected
from fastdime.experiments.paper.catalogue import EXPERIMENTS
from fastdime.experiments.paper.catalogue import experiment as look_up
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Row
from fastdime.files import not_writable, write_atomically
from fastdime.scoring.rows import as_json

TABLE = "table.json"
SETTLED = ("scale", "n", "seed")  # options of a plan that all results in a folder have in common
Runner = Callable[[Experiment, Plan, Show], Outcome]

# Module and function, opened when they are needed: no experiment pays for the others.
RUNNERS: Mapping[str, str] = MappingProxyType(
    {
        "counterfactuals": "grid:run_grid",
        "efficiency": "efficiency:run_efficiency",
        "shortcuts": "shortcuts:run_shortcuts",
        "ablation-mask": "grid:run_grid",
        "ablation-methods": "grid:run_grid",
        "toy2d": "toy2d:run_toy2d",
        "teaser": "figures:run_teaser",
        "path": "figures:run_path",
        "gallery": "figures:run_gallery",
    }
)


def runner_of(name: str) -> Runner:
    """Open what does the work of an experiment."""
    module, _, function = RUNNERS[look_up(name).name].partition(":")
    found: Runner = getattr(import_module(f"{__package__}.{module}"), function)
    return found


def run_experiment(name: str, plan: Plan, show: Show) -> Outcome:
    """Do an experiment in OUT/NAME, where the plan has OUT; called again, it goes on where it stopped."""
    found = look_up(name)
    own = replace(plan, out=plan.out / name)
    found.size(own.scale)
    _check_same(plan, own.out)
    try:
        own.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(own.out, error) from None
    return runner_of(name)(found, own, show)


def _check_same(plan: Plan, folder: Path) -> None:
    """Refuse a folder whose table was made with other options: its pictures would be lost."""
    if not (folder / TABLE).is_file():
        return
    old = read_json(folder / TABLE)
    for name in (name for name in SETTLED if name in old):
        there, asked = (_typed(name, value) for value in (old[name], getattr(plan, name)))
        if there != asked:
            remedy = f"choose another --out or the same --{name}"
            raise InputError(expected(f"--out {plan.out}", f"{there}, as {folder} has it", asked, remedy))


def _typed(name: str, value: object) -> str:
    return f"no --{name}" if value is None else f"--{name} {value}"


def told(name: str, plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """Return what is written and printed as JSON; pictures are named as they are found in OUT/NAME."""
    folder = plan.out / name
    return {
        "experiment": name,
        **{option: getattr(plan, option) for option in SETTLED},
        "rows": [_plain(row) for row in outcome.rows],
        "notes": list(outcome.notes),
        "pictures": [str(path.relative_to(folder)) for path in outcome.pictures],
    }


def _plain(row: Row) -> Row:
    return {name: as_json(value) for name, value in row.items()}


def write_table(name: str, plan: Plan, outcome: Outcome) -> Path:
    """Write OUT/NAME/table.json."""
    path = plan.out / name / TABLE
    write_atomically(path, f"{json.dumps(told(name, plan, outcome), indent=1)}\n".encode())
    return path


def listed() -> list[Row]:
    """Return a line for each experiment."""
    return [
        {
            "experiment": each.name,
            "in_the_paper": each.source,
            "minutes": each.size("small")["minutes"],
            "title": each.title,
        }
        for each in EXPERIMENTS.values()
    ]
