"""The numbers of every pair, as a table."""

import csv
import io
import math
from pathlib import Path

from fastdime.errors import InputError, expected
from fastdime.files import write_atomically
from fastdime.scoring.score import Scores


def check_place(path: Path, labels: Path | None) -> None:
    """Refuse a name that no table can be written to, before any work is done."""
    wanted = "a file that ends with .csv, in a folder that is there, and is not read"
    read = labels is not None and path.exists() and labels.exists() and path.samefile(labels)
    if path.suffix.lower() != ".csv" or not path.parent.is_dir() or read:
        raise InputError(expected("--per-image", wanted, path, "choose another"))


def write_values(path: str | Path, scores: Scores) -> Path:
    """Write one row a pair: its id, whether it is valid, and every metric that it has; blank for none."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    standing = scores.standing
    writer.writerow(["id", "valid", *scores.values])
    for row, name in enumerate(scores.ids):
        if not standing.read[row]:
            continue
        valid = "" if standing.valid is None else int(standing.valid[row])
        writer.writerow([name, valid, *(_cell(column[row]) for column in scores.values.values())])
    write_atomically(Path(path), buffer.getvalue().encode())
    return Path(path)


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"
