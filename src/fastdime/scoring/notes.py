"""What has to be known about pairs before their scores are believed."""

from collections.abc import Iterator

import numpy as np

from fastdime.pipeline.pairs import Pairs
from fastdime.scoring.equipment import Equipment
from fastdime.scoring.passing import Seen

ROUNDED = 1e-5  # records keep six digits of a change


def notes(pairs: Pairs, seen: Seen, equipment: Equipment) -> Iterator[str]:
    """Yield one sentence for each thing that is not as one would think."""
    if pairs.alone:
        yield f"{len(pairs.alone)} originals have no counterfactual"
    planned = pairs.config.get("data", {}).get("images", 0)
    done = len(pairs) + len(pairs.failed)
    if pairs.records and planned > done:
        yield f"the run is not finished: {done} of {planned} images"
    if equipment.judge is not None and (already := int((seen.predicted == seen.target).sum())):
        yield f"{already} of {len(pairs)} originals are in their target class already, and count as they are"
    if pairs.records and "l1" in seen.columns:
        told = np.array([record.get("change", np.nan) for record in pairs.records])
        changed = int((np.abs(told - seen.columns["l1"]) > ROUNDED).sum())
        if changed:
            yield f"{changed} originals or counterfactuals are not the files that the run read and wrote"
