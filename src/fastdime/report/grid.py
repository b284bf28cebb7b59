"""One PNG of a run: input, counterfactual, difference, mask and, if known, the exact truth of each image."""

from pathlib import Path

from fastdime.data import io
from fastdime.data.phantoms.write import OTHER, read_config, truth_path
from fastdime.errors import DataError, InputError, expected
from fastdime.pipeline.summary import read_explained
from fastdime.runs import Record, image_path, mask_path
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
    config, records = read_explained(run)
    good = [record for record in records if "error" not in record][:limit]
    if not good:
        raise DataError(expected(str(run), "at least one finished image", "none"))
    rows = [_row(run, config, record, truth) for record in good]
    titles = COLUMNS if truth is None else (*COLUMNS, "exact truth")
    return write_sheet(out, draw_sheet(titles, rows))


def _row(run: str | Path, config: dict[str, object], record: Record, truth: str | Path | None) -> Row:
    cells, line = pictures(run, config, record), caption(record)
    if truth is not None:
        cells.append(shown(io.read(truth_path(truth, OTHER, record["id"])).x.numpy()))
        done = "added" if record["target"] else "removed"
        line = f"{read_config(truth)['shortcut']} {done}; {line}"
    return Row(cells, line, "black" if record["valid"] else "firebrick")


def pictures(run: str | Path, config: dict[str, object], record: Record) -> list[Picture]:
    """Return the pictures of one image of a run, in the order of COLUMNS."""
    size, convert = config.get("size"), bool(config.get("convert"))
    after = io.read(image_path(run, record["id"]))
    channels = after.x.shape[0]
    fitted = size if isinstance(size, int) else None
    before = io.read(record["path"], channels=channels, size=fitted, convert=convert)
    mask = io.read_mask(mask_path(run, record["id"]))
    if before.x.shape != after.x.shape:
        sizes = ["x".join(map(str, picture.x.shape[1:])) for picture in (after, before)]
        remedy = "the file is not the one that was explained"
        raise DataError(expected(str(record["path"]), f"{sizes[0]} pixels", sizes[1], remedy))
    return [
        shown(before.x.numpy()),
        shown(after.x.numpy()),
        signed((after.x - before.x).mean(0).numpy()),
        shown(mask.numpy() * 2.0 - 1),
    ]


def caption(record: Record) -> str:
    """Return the line below an image; the font that is always there has no letters beyond ASCII."""
    name = " ".join(record["id"].encode("ascii", "backslashreplace").decode().split())
    name = name if len(name) <= LONGEST_ID else f"...{name[-LONGEST_ID:]}"
    odds = f"p(class {record['target']}) {record['p_before']:.2f} -> {record['p_after']:.2f}"
    return f"{name}: {odds}, {'reached' if record['valid'] else 'not reached'}"
