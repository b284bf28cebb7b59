"""What a training run writes down as it goes: its settings, and a log that TensorBoard reads too.

OUT/config.json     the settings; a run goes on only with the same
OUT/log.jsonl       one line of numbers at a time
OUT/tensorboard/    the same numbers as TensorBoard events
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastdime.configs import read_json
from fastdime.errors import InputError, expected
from fastdime.files import not_writable, write_atomically

CONFIG, LOG, EVENTS = "config.json", "log.jsonl", "tensorboard"
OURS = {"task", "settings"}  # in the config.json of every training, and of nothing else
HASHES = ("task.data", "start_weights")  # a run of an older version, which has none, goes on without


class Journal:
    """The log of a run from one update on; what was written after that update is forgotten."""

    def __init__(self, out: Path, step: int) -> None:
        """Cut the log after `step`, and open the events."""
        from torch.utils.tensorboard.writer import SummaryWriter

        self.path = out / LOG
        new = not (out / EVENTS).exists()
        kept = _cut(self.path, step)
        # TensorBoard itself leaves out what earlier files say of updates that are done again.
        self.events = SummaryWriter(str(out / EVENTS), purge_step=step + 1)
        for entry in kept if new else ():
            self._tell(entry)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a line."""
        entry = {"step": step, **numbers}
        with self.path.open("a", encoding="utf8") as file:
            file.write(json.dumps(entry) + "\n")
        self._tell(entry)

    def flush(self) -> None:
        """Put on disk what a checkpoint will rely on."""
        self.events.flush()

    def close(self) -> None:
        """Write the rest."""
        self.events.close()

    def _tell(self, entry: Mapping[str, Any]) -> None:
        for name, value in entry.items():
            if name != "step":
                tag = name.replace("valid_", "valid/") if name.startswith("valid_") else f"train/{name}"
                self.events.add_scalar(tag, value, entry["step"])


def _cut(path: Path, step: int) -> list[dict[str, Any]]:
    """Forget what was logged after an update, and a line that was not finished."""
    if not path.is_file():
        return []
    lines = [line for line in path.read_text(encoding="utf8").splitlines() if line.endswith("}")]
    kept = [entry for entry in map(json.loads, lines) if entry["step"] <= step]
    write_atomically(path, "".join(f"{json.dumps(entry)}\n" for entry in kept).encode())
    return kept


def settle(
    out: Path, config: Mapping[str, Any], usual: Mapping[str, Any], *, write: bool, begun: bool = True
) -> None:
    """Write the settings of a new run, or refuse to go on with a run that has others.

    Args:
        usual: what fields mean that an older run did not write down.
        begun: whether there is something to go on with; a run that failed before does not bind the next.
    """
    path = out / CONFIG
    there = read_json(path) if path.is_file() else None
    if there is None or (not begun and there.keys() >= OURS):
        if write:
            _make(out)
            write_atomically(path, (json.dumps(config, indent=2) + "\n").encode())
        return
    given, found, meant = _flat(json.loads(json.dumps(config))), _flat(there), _flat(usual)
    new, old = {**meant, **given}, {**meant, **found}
    for name in {**found, **new}:
        untold = name in HASHES and name not in found
        if not untold and new.get(name) != old.get(name):
            got = f"{name} = {new.get(name)!r}, where the run has {old.get(name)!r}"
            raise InputError(
                expected(str(out), "the settings it was begun with", got, "choose another --out")
            )


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(out, error) from None


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    parts = [_flat(part, f"{name}.{key}" if name else str(key)) for key, part in value.items()]
    return {key: leaf for part in parts for key, leaf in part.items()}
