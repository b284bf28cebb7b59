"""What a run came to, from its records alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastdime.errors import InputError, expected
from fastdime.pipeline.options import KIND
from fastdime.runs import TIMING, Record, read_run


@dataclass(frozen=True)
class Summary:
    """Counts and means over a run; a mean over no image is None.

    Attributes:
        images: explained images; `errors` are those that could not be used.
        flip_rate: share of images that reached their target.
        mean_change: mean absolute change of a pixel, on the scale from 0 to 1.
        changed_area: share of pixels that changed at all.
        seconds_per_image: wall time of all batches, with reading and writing.
        denoiser_calls, gradient_calls: network calls for an image.
    """

    images: int
    errors: int
    flip_rate: float | None
    mean_change: float | None
    changed_area: float | None
    seconds_per_image: float | None
    denoiser_calls: float | None
    gradient_calls: float | None


def summarise(run: str | Path) -> Summary:
    """Summarise a run folder."""
    _, records = read_explained(run)
    good = [record for record in records if "error" not in record]
    return Summary(
        images=len(good),
        errors=len(records) - len(good),
        flip_rate=_mean(good, "valid"),
        mean_change=_mean(good, "change"),
        changed_area=_mean(good, "changed_area"),
        seconds_per_image=_seconds(Path(run) / TIMING),
        denoiser_calls=_mean(good, "denoiser_calls"),
        gradient_calls=_mean(good, "gradient_calls"),
    )


def read_explained(run: str | Path) -> tuple[dict[str, Any], list[Record]]:
    """Read settings and records of a run of `explain`; a folder of another command is refused."""
    config, records = read_run(run)
    if config.get("kind") != KIND:
        got = f"one of kind {config.get('kind')!r}"
        raise InputError(expected(str(run), "a run folder of fastdime explain", got, "check the path"))
    return config, records


def _mean(records: Sequence[Record], name: str) -> float | None:
    return sum(record[name] for record in records) / len(records) if records else None


def _seconds(path: Path) -> float | None:
    if not path.is_file():
        return None
    entries = []
    for line in path.read_text(encoding="utf8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:  # a killed run may leave half a line
            continue
    images = sum(entry["images"] for entry in entries)
    return sum(entry["seconds"] for entry in entries) / images if images else None
