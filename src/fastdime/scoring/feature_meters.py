"""Meters that look through a feature network: realism of whole sets, likeness and identity of pairs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fastdime.features.network import FeatureNetwork
from fastdime.metrics.attributes import same_identity
from fastdime.metrics.bank import FeatureBank
from fastdime.metrics.rows import finite
from fastdime.metrics.similarity import cosine, euclidean
from fastdime.pipeline.pairs import Batch
from fastdime.scoring.meters import Meter, Values
from fastdime.scoring.rows import NAN, Row
from fastdime.scoring.sets import Sets
from fastdime.scoring.standing import Standing
from fastdime.scoring.verdicts import Verdict
from fastdime.types import Images

SETS = ("fid", "sfid", "kid")


@dataclass(frozen=True)
class Realism(Meter):
    """FID, sFID, KID and FS; the features of all pairs are kept in files until the end."""

    network: FeatureNetwork
    seed: int = 0
    repeats: int = 10
    real: FeatureBank = field(default_factory=FeatureBank)
    fake: FeatureBank = field(default_factory=FeatureBank)
    rows: list[int] = field(default_factory=list)

    @property
    def gives(self) -> Mapping[str, str]:
        """Distances of sets, and the cosine of pairs."""
        return dict.fromkeys((*SETS, "fs"), self.network.name)

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Compute the features once for all."""
        before, after = self.network(batch.x).cpu(), self.network(batch.x_cf).cpu()
        self.real.update(before)
        self.fake.update(after)
        self.rows.extend(batch.rows)
        return {"fs": cosine(before, after)}

    def see_alone(self, x: Images) -> None:
        """Add originals that have no counterfactual, after all pairs."""
        self.real.update(self.network(x).cpu())

    def conclude(self, names: list[str], standing: Standing) -> dict[str, Row]:
        """Compare the two sets."""
        found: dict[str, Row] = {}
        for name in SETS:
            if name in names:
                found |= self._compared(name, standing)
        return found

    def _compared(self, name: str, standing: Standing) -> dict[str, Row]:
        chosen, sets, lost = self._sets(name, standing)
        blank = Row(NAN, n=len(sets.fakes), subset=chosen, network=self.network.name)
        if len(sets.fakes) < 2:
            return {name: blank.noted(f"{len(sets.fakes)} pairs are too few to compare sets").noted(lost)}
        rows: dict[str, Row] = {}
        if name == "sfid":
            rows = {name: sets.sfid(blank, self.repeats, self.seed)}
        if name == "fid":
            rows = {name: sets.fid(blank)}
        if name == "kid" or (name == "fid" and rows["fid"].warning):
            rows["kid"] = sets.kid(blank, self.seed)
        if name == "fid" and rows["fid"].warning:
            rows |= sets.floors(blank, self.seed)
        return {key: row.noted(lost) for key, row in rows.items()}

    def _sets(self, name: str, standing: Standing) -> tuple[str, Sets, str]:
        """Return what the pairs are called, their features, and a note about those that have none."""
        chosen = standing.pairs(name)
        real, fake, wanted = self.real.array(), self.fake.array(), chosen.rows[self.rows]
        good = finite(real)
        both = good[: len(fake)] & finite(fake)
        fakes = np.flatnonzero(wanted & both)
        reals = np.flatnonzero(good) if standing.published else fakes
        lost = int((wanted & ~both).sum())
        note = f"{lost} pairs have no features" if lost else ""
        whole = standing.published and len(reals) > len(fakes)
        return (
            f"{chosen.name}, against all originals" if whole else chosen.name,
            Sets(real, fake, reals, fakes),
            note,
        )

    def close(self) -> None:
        """Delete the files."""
        self.real.close()
        self.fake.close()


@dataclass(frozen=True)
class Identity(Meter):
    """FVA: is it still the same face?"""

    network: FeatureNetwork

    @property
    def gives(self) -> Mapping[str, str]:
        """FVA alone."""
        return {"fva": self.network.name}

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Compare faces; NaN where the original shows none, and a face that is lost is another one."""
        before, after = self.network(batch.x).cpu(), self.network(batch.x_cf).cpu()
        if self.network.same_within is None:
            return {"fva": same_identity(torch.from_numpy(cosine(before, after)))}
        same = (euclidean(before, after) < self.network.same_within).astype(np.float64)
        return {"fva": np.where(before.isnan().any(1).numpy(), np.nan, same)}
