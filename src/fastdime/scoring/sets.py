"""Features of originals against features of counterfactuals: FID, sFID, KID, and when to trust them."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastdime.metrics.frechet import distance_of
from fastdime.metrics.kernel import MOST, kid
from fastdime.metrics.realism import floor, sfid
from fastdime.scoring.rows import Row

FLOOR_REPEATS = 5
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Sets:
    """Rows of features.

    Attributes:
        real: of the originals; those without a counterfactual come last.
        fake: of the counterfactuals, row by row those of the first originals.
        reals, fakes: which rows are compared; every one of `fakes` is among `reals`.
    """

    real: NDArray[np.float32]
    fake: NDArray[np.float32]
    reals: Index
    fakes: Index

    @property
    def dim(self) -> int:
        """Number of features."""
        return int(self.real.shape[1])

    def fid(self, blank: Row) -> Row:
        """FID, with a warning where it says little."""
        n = min(len(self.fakes), len(self.reals))
        warning = f"unreliable: {n} pairs for {self.dim} features; look at kid" if n <= self.dim else ""
        value = distance_of(self.real, self.fake, self.reals, self.fakes)
        return replace(blank, value=value, warning=warning)

    def floors(self, blank: Row, seed: int) -> dict[str, Row]:
        """FID and KID between halves of the originals: no method can be asked for less."""
        found = floor(self.real[self.reals], len(self.fakes), repeats=FLOOR_REPEATS, seed=seed)
        blank = replace(blank, n=found.size, subset="originals against originals", warning="")
        if found.size < 2:
            blank = replace(
                blank, warning=f"{len(self.reals)} originals are too few to compare with each other"
            )
        elif found.size < len(self.fakes):
            blank = replace(blank, warning=f"of sets of {found.size}, as in sfid, for want of more originals")
        rows = {"fid_floor": found.fid, "kid_floor": found.kid}
        return {name: replace(blank, value=it.mean, more={"spread": it.spread}) for name, it in rows.items()}

    def sfid(self, blank: Row, repeats: int, seed: int) -> Row:
        """Mean over random halves, and their spread."""
        valid = np.isin(self.reals, self.fakes)
        fake = np.zeros((len(self.reals), self.dim), np.float32)
        fake[valid] = self.fake[self.fakes]
        found = sfid(self.real[self.reals], fake, valid, repeats=repeats, seed=seed)
        half = len(self.fakes) // 2
        warning = f"unreliable: halves of {half} pairs for {self.dim} features" if half <= self.dim else ""
        if not np.isfinite(found.mean):
            warning = "a half has fewer than two pairs"
        more = {"spread": found.spread, "repeats": repeats}
        return replace(blank, value=found.mean, warning=warning, more=more)

    def kid(self, blank: Row, seed: int) -> Row:
        """KID with its interval; a picture is not compared with its own counterfactual."""
        origin = np.searchsorted(self.reals, self.fakes)
        found = kid(self.real[self.reals], self.fake[self.fakes], made_from=origin, seed=seed)
        row = replace(blank, value=found.value, low=found.low, high=found.high)
        if len(self.reals) <= MOST:
            return row
        return replace(
            row, n=min(row.n, MOST), warning=f"over {MOST} of {len(self.reals)} originals, drawn at random"
        )
