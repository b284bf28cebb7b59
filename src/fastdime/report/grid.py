"""One PNG of a run: input, counterfactual, difference, mask and, if known, the exact truth of each image."""

from pathlib import Path

from fastdime.data import io
from fastdime.data.phantoms.write import OTHER, read_config, truth_path
from fastdime.errors import InputError, expected
from fastdime.pipeline.pairs import Pairs, pairs_of_run, read_pair
from fastdime.runs import Record
from fastdime.sheets import Picture, Row, draw_sheet, shown, signed, write_sheet

LONGEST_ID = 40  # letters; more would run into the next block
COLUMNS = ("input", "counterfactual", "difference", "mask")


def draw_run(run: str | Path, out: str | Path, limit: int = 12, truth: str | Path | None = None) -> Path:
    """Draw the first images of a run; returns the path of the picture.

    Args:
        truth: the phantom set that was explained, whose exact counterfactuals are drawn beside.
    """
    if limit < 1:
        raise InputError(expected("limit", "1 or more", limit))
    pairs = pairs_of_run(run)
    rows = [_row(pairs, number, truth) for number in range(min(limit, len(pairs)))]
    titles = COLUMNS if truth is None else (*COLUMNS, "exact truth")
    return write_sheet(out, draw_sheet(titles, rows))


def _row(pairs: Pairs, number: int, truth: str | Path | None) -> Row:
    record = pairs.records[number]
    cells, line = pictures(pairs, number), caption(record)
    if truth is not None:
        cells.append(shown(io.read(truth_path(truth, OTHER, record["id"])).x.numpy()))
        done = "added" if record["target"] else "removed"
        line = f"{read_config(truth)['shortcut']} {done}; {line}"
    return Row(cells, line, "black" if record["valid"] else "firebrick")


def pictures(pairs: Pairs, number: int) -> list[Picture]:
    """Return the pictures of one image of a run, in the order of COLUMNS."""
    before, after, mask = read_pair(pairs.places[number], pairs.size, pairs.convert)
    assert mask is not None  # a run has one for each image
    return [
        shown(before.numpy()),
        shown(after.numpy()),
        signed((after - before).mean(0).numpy()),
        shown(mask.numpy() * 2.0 - 1),
    ]


def caption(record: Record) -> str:
    """Return the line below an image; the font that is always there has no letters beyond ASCII."""
    name = " ".join(record["id"].encode("ascii", "backslashreplace").decode().split())
    name = name if len(name) <= LONGEST_ID else f"...{name[-LONGEST_ID:]}"
    odds = f"p(class {record['target']}) {record['p_before']:.2f} -> {record['p_after']:.2f}"
    return f"{name}: {odds}, {'reached' if record['valid'] else 'not reached'}"
