"""The numbers of every pair, as a table."""

import csv
import io
import math
from pathlib import Path

from fastdime.data.table import check_table_name
from fastdime.files import write_atomically
from fastdime.scoring.score import Scores


def write_values(path: str | Path, scores: Scores) -> Path:
    """Write one row a pair: its id, whether it is valid, and every metric that it has; blank for none."""
    check_table_name(path)
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
