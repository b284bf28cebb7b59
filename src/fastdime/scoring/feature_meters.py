"""Meters that look through a feature network: realism of whole sets, likeness and identity of pairs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fastdime.errors import FastdimeError
from fastdime.features.network import FeatureNetwork
from fastdime.metrics.attributes import same_identity
from fastdime.metrics.bank import FeatureBank
from fastdime.metrics.frechet import distance_of
from fastdime.metrics.kernel import kid
from fastdime.metrics.realism import floor, sfid
from fastdime.metrics.rows import pair
from fastdime.metrics.similarity import cosine, euclidean
from fastdime.pipeline.pairs import Batch
from fastdime.scoring.meters import Meter, Values
from fastdime.scoring.rows import NAN, Row, missing
from fastdime.scoring.standing import Standing
from fastdime.scoring.verdicts import Verdict

SETS = ("fid", "sfid", "kid")
FLOOR_REPEATS = 5


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

    def conclude(self, names: list[str], standing: Standing) -> dict[str, Row]:
        """Compare the two sets."""
        found: dict[str, Row] = {}
        for name in SETS:
            if name in names:
                try:
                    found |= self._compared(name, standing)
                except FastdimeError as error:
                    found[name] = missing(error, self.network.name)
        return found

    def _compared(self, name: str, standing: Standing) -> dict[str, Row]:
        chosen = standing.pairs(name)
        real, fake = pair(self.real.array(), self.fake.array())
        sets = _Sets(real, fake, chosen.rows[self.rows], standing.published)
        blank = Row(NAN, n=sets.n, subset=chosen.name, network=self.network.name)
        if standing.published and sets.n < len(self.rows):
            blank = replace(blank, subset=f"{chosen.name}, against all originals")
        if sets.n < 2:
            return {name: replace(blank, warning=f"{sets.n} pairs are too few to compare sets")}
        if name == "kid":
            return {name: sets.kid(blank, self.seed)}
        if name == "sfid":
            return {name: sets.sfid(blank, self.repeats, self.seed)}
        return sets.fid(blank, self.seed)

    def close(self) -> None:
        """Delete the files."""
        self.real.close()
        self.fake.close()


@dataclass(frozen=True)
class _Sets:
    """Features of originals and counterfactuals, row by row, and which counterfactuals count."""

    real: NDArray[np.float32]
    fake: NDArray[np.float32]
    valid: NDArray[np.bool_]
    all_originals: bool

    @property
    def n(self) -> int:
        return int(self.valid.sum())

    @property
    def _fakes(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.valid)

    @property
    def _reals(self) -> NDArray[np.int64]:
        return np.arange(len(self.real)) if self.all_originals else self._fakes

    def fid(self, blank: Row, seed: int) -> dict[str, Row]:
        """FID; with few pairs also what it would be between real pictures."""
        value, dim = distance_of(self.real, self.fake, self._reals, self._fakes), self.real.shape[1]
        row = replace(blank, value=value)
        if self.n > dim:
            return {"fid": row}
        warning = f"unreliable: {self.n} pairs for {dim} features; look at kid and the floor"
        rows = {"fid": replace(row, warning=warning)}
        found = floor(self.real, self.n, repeats=FLOOR_REPEATS, seed=seed)
        blank = replace(blank, n=found.size, subset="originals against originals")
        for name, spread in (("fid_floor", found.fid), ("kid_floor", found.kid)):
            rows[name] = replace(blank, value=spread.mean, more={"spread": spread.spread})
        return rows

    def sfid(self, blank: Row, repeats: int, seed: int) -> Row:
        """Mean over random halves, and their spread."""
        rows = np.arange(len(self.real)) if self.all_originals else self._fakes
        found = sfid(self.real[rows], self.fake[rows], self.valid[rows], repeats=repeats, seed=seed)
        warning = "" if np.isfinite(found.mean) else "a half has fewer than two pairs"
        more = {"spread": found.spread, "repeats": repeats}
        return replace(blank, value=found.mean, warning=warning, more=more)

    def kid(self, blank: Row, seed: int) -> Row:
        """KID with its interval; a picture is not compared with its own counterfactual."""
        paired = not self.all_originals
        found = kid(self.real[self._reals], self.fake[self._fakes], paired=paired, seed=seed)
        return replace(blank, value=found.value, low=found.low, high=found.high)


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
