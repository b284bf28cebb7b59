"""The model card: what a trained model is, in a file for programs and in one for people."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastdime.files import write_atomically

CARD, README = "card.json", "README.md"
TITLES = {
    "denoiser": "Denoiser",
    "guide": "Guide: a classifier of the shortcut",
    "task": "Classifier of the task",
}


def write_card(out: Path, told: Mapping[str, Any], note: str = "") -> None:
    """Write card.json and README.md."""
    write_atomically(out / CARD, (json.dumps(told, indent=2) + "\n").encode())
    rows = "".join(f"| {name} | {value} |\n" for name, value in flat(told) if name != "command")
    command = f"```sh\n{told['command']}\n```\n\n" if told.get("command") else ""
    recipe = f"Recipe `{told['recipe']}`. {note}".strip()
    text = f"# {TITLES[told['kind']]}\n\n{recipe}\n\n{command}| what | value |\n|---|---|\n{rows}"
    write_atomically(out / README, text.encode())


def flat(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values in words, also of what is inside.

    >>> list(flat({"best_update": 40, "validation": {"loss": 0.12345678}}))
    [('best update', '40'), ('validation loss', '0.1235')]
    """
    for name, value in told.items():
        words = name.replace("_", " ")
        if isinstance(value, Mapping):
            yield from ((f"{words} {inner}", text) for inner, text in flat(value))
        else:
            yield words, f"{value:.4g}" if isinstance(value, float) else str(value)
