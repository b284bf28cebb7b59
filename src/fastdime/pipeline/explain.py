"""Explain a whole data set into a run folder: any number of images, constant memory, safe to interrupt.

Batches are cut from the table by position, so an interrupted run meets the same batches again and ends with
the same bytes.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fastdime.counterfactuals.explainer import Explainer
from fastdime.data.io import write_image, write_mask
from fastdime.data.table import Table, read_table
from fastdime.errors import InputError, expected
from fastdime.pipeline.inputs import Failure, Inputs, Row, open_inputs
from fastdime.pipeline.options import RunOptions, device_of, run_config, settled_batch_size
from fastdime.pipeline.summary import Summary, summarise
from fastdime.runs import Record, Run
from fastdime.types import Counterfactuals

Progress = Callable[[float, int], None]


def explain(
    data: str | Path | Table,
    explainer: Explainer,
    out: str | Path,
    options: RunOptions | None = None,
    *,
    sources: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Make the counterfactuals of a data set in a run folder; called again, it goes on where it stopped.

    Args:
        data: a table (CSV with `path`, optional `id`, label columns), a folder of images, or one image.
        out: the run folder.
        sources: where denoiser and classifier came from, for the record.
        progress: called with (images done, images in all); the first may have a fraction.
    """
    options = options or RunOptions()
    _check_out(data, Path(out))
    table, folder = open_data(data, options)
    inputs = open_inputs(table, options, folder, explainer)
    size = settled_batch_size(options, Path(out), explainer)
    config = run_config(table, explainer, options, size, sources or {}, inputs.classes)
    with Run.open(out, config, inputs=table.ids) as run:
        work = _Work(inputs, explainer, run, progress or _silent)
        for first in range(0, len(table), size):
            work.batch(range(first, min(first + size, len(table))))
    return summarise(out)


def open_data(data: str | Path | Table, options: RunOptions) -> tuple[Table, Path]:
    """Return the images to work on, and the folder that a column of masks is relative to."""
    table = data if isinstance(data, Table) else read_table(data, root=options.root)
    table = table.head(options.limit) if options.limit else table
    return table, options.root or (Path() if isinstance(data, Table) else Path(data).parent)


def _check_out(data: str | Path | Table, out: Path) -> None:
    # The pictures of the run would be data when it goes on.
    if isinstance(data, str | Path) and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(data)):
        raise InputError(
            expected(str(out), f"a run folder outside of {data}", "one inside", "choose another")
        )


def _silent(done: float, of: int) -> None:
    pass


@dataclass(frozen=True)
class _Work:
    inputs: Inputs
    explainer: Explainer
    run: Run
    progress: Progress

    def batch(self, places: range) -> None:
        """Explain one batch and record it; a batch that is recorded in part is made again as a whole."""
        total = len(self.inputs.table)
        if all(self.inputs.table.ids[place] in self.run.done for place in places):
            return
        self.progress(places.start, total)
        began = time.perf_counter()
        entries = self.inputs.batch(places)
        records = {entry.image_id: _failed(entry) for entry in entries if isinstance(entry, Failure)}
        for bits in (8, 16):
            rows = [entry for entry in entries if isinstance(entry, Row) and entry.bits == bits]
            if rows:
                records |= self._explain(rows, bits, places)
        missing = [records[entry.image_id] for entry in entries if entry.image_id not in self.run.done]
        self.run.append(missing)
        seconds = time.perf_counter() - began
        self.run.append_timing({"first": places.start, "images": len(places), "seconds": round(seconds, 3)})
        self.progress(places.stop, total)

    def _explain(self, rows: Sequence[Row], bits: int, places: range) -> dict[str, Record]:
        device = device_of(self.explainer)
        x = torch.stack([row.x for row in rows]).to(device)
        targets = [row.target for row in rows if row.target is not None]
        try:
            result = replace(self.explainer, bits=bits)(
                x,
                torch.tensor(targets) if targets else "flip",
                ids=[row.image_id for row in rows],
                region=_stacked(rows, device),
                tick=self._tick(places),
            )
        except torch.OutOfMemoryError:
            wanted = f"fewer than {len(rows)} images at a time, for the memory of {device}"
            remedy = "choose a smaller one and another --out"
            raise InputError(expected("--batch-size", wanted, "out of memory", remedy)) from None
        return {
            row.image_id: _ran_away(row) if result.diverged[i] else self._save(row, x[i], result, i)
            for i, row in enumerate(rows)
        }

    def _tick(self, places: range) -> Callable[[int, int], None]:
        furthest = 0.0

        def tick(done: int, steps: int) -> None:
            nonlocal furthest  # each attempt counts its steps anew, for those images that need it
            furthest = max(furthest, min(done / steps, 0.99))
            self.progress(places.start + len(places) * furthest, len(self.inputs.table))

        return tick

    def _save(self, row: Row, x: Tensor, result: Counterfactuals, i: int) -> Record:
        x_cf = result.x_cf[i]
        if row.image_id not in self.run.done:
            write_image(self.run.image_path(row.image_id), x_cf, row.bits)
            write_mask(self.run.mask_path(row.image_id), result.mask[i])
        difference = (x_cf - x).abs()
        return {
            "id": row.image_id,
            "path": str(row.path.absolute()),
            "image": self.run.image_path(row.image_id).name,
            "mask": self.run.mask_path(row.image_id).name,
            "predicted": int(result.predicted[i]),
            "target": int(result.target[i]),
            "p_before": round(float(result.p_before[i]), 6),
            "p_after": round(float(result.p_after[i]), 6),
            "valid": bool(result.valid[i]),
            "scale": float(result.scale[i]),
            "change": round(float(difference.mean()) / 2, 6),
            "changed_area": round(float((difference.amax(0) > 0).float().mean()), 6),
            "denoiser_calls": int(result.denoiser_calls[i]),
            "gradient_calls": int(result.gradient_calls[i]),
        }


def _failed(entry: Failure) -> Record:
    return {"id": entry.image_id, "path": str(entry.path.absolute()), "error": entry.error}


def _ran_away(row: Row) -> Record:
    sentence = expected("guidance", "an image", "numbers without bound", "lower scales, strength or l1")
    return _failed(Failure(row.image_id, row.path, sentence))


def _stacked(rows: Sequence[Row], device: torch.device) -> Tensor | None:
    regions = [row.region for row in rows if row.region is not None]
    return torch.stack(regions).to(device) if regions else None
