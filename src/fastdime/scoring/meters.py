"""What measures pairs: each meter gives some metrics, one number a pair, while the pairs go by."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fastdime.metrics import closeness, validity
from fastdime.metrics.cout import cout
from fastdime.metrics.lpips import Lpips
from fastdime.pipeline.pairs import Batch
from fastdime.scoring.rows import Row
from fastdime.scoring.standing import Rows, Standing
from fastdime.scoring.verdicts import Asked, Verdict
from fastdime.types import Images

Values = Mapping[str, Tensor | NDArray[np.float64]]  # one number a pair, NaN where there is none

VALIDITY = ("fr", "bkl", "mad", "md")
BY_SHORTCUT = ("md_s0", "md_s1")
POINTS = np.linspace(0, 1, 51)  # shares of pixels at which curves are kept: images of any size have the same
CLOSENESS = {
    "l1": closeness.l1,
    "l2": closeness.l2,
    "ssim": closeness.ssim,
    "changed_area": closeness.changed_area,
}


class Meter(ABC):
    """Something that measures pairs."""

    @property
    @abstractmethod
    def gives(self) -> Mapping[str, str]:
        """The metrics that it can give, each with the network behind it, "" for none."""

    @abstractmethod
    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Return one number a pair; what is about whole sets is only taken note of."""

    def see_alone(self, x: Images) -> None:
        """Take note of originals that have no counterfactual; most have no use for them."""
        return None

    def conclude(self, names: list[str], standing: Standing) -> dict[str, Row]:
        """Return those of the metrics that are about whole sets, once all pairs were seen."""
        return {}

    def more(self, name: str, rows: Rows) -> dict[str, Any]:
        """Return what belongs to a metric besides its mean over some of the pairs."""
        return {}

    def close(self) -> None:
        """Let go of files, if there are any."""
        return None


@dataclass(frozen=True)
class Validity(Meter):
    """What the classifier thinks."""

    network: str

    @property
    def gives(self) -> Mapping[str, str]:
        """Flips and confidences."""
        return dict.fromkeys(VALIDITY, self.network)

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Read the numbers off the verdict."""
        assert verdict is not None  # there is no such meter without a judge
        both = verdict.confidence()
        return {
            "fr": verdict.valid.numpy().astype(np.float64),
            "bkl": validity.bounded_kl(verdict.p_after),
            "mad": validity.absolute_confidence_change(*both),
            "md": validity.confidence_change(*both),
        }


@dataclass(frozen=True)
class ByShortcut(Meter):
    """What the classifier thinks of pairs with the shortcut, and of those without."""

    network: str
    shows: NDArray[np.float64]

    @property
    def gives(self) -> Mapping[str, str]:
        """The difference of the confidence, in two parts."""
        return dict.fromkeys(BY_SHORTCUT, self.network)

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Read the numbers off the verdict."""
        assert verdict is not None
        change = validity.confidence_change(*verdict.confidence())
        shows = self.shows[batch.rows]
        return {name: np.where(shows == s, change, np.nan) for s, name in enumerate(BY_SHORTCUT)}


@dataclass(frozen=True)
class Pasting(Meter):
    """COUT; keeps the two curves of each pair."""

    judge: Asked
    curves: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def gives(self) -> Mapping[str, str]:
        """COUT alone."""
        return {"cout": self.judge.network}

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Paste the counterfactuals bit by bit into the originals."""
        assert verdict is not None
        found = cout(batch.x, batch.x_cf, self.judge.probabilities, verdict.predicted, verdict.target)
        for number, row in enumerate(batch.rows):
            both = found.original_curve[number], found.target_curve[number]
            self.curves[row] = np.stack([np.interp(POINTS, found.share, curve) for curve in both])
        return {"cout": found.score}

    def more(self, name: str, rows: Rows) -> dict[str, Any]:
        """Return the mean curves of both classes, with 0 %, 2 %, ... 100 % of the pixels pasted."""
        kept = [curve for row, curve in self.curves.items() if rows[row]]
        original, target = np.mean(kept, axis=0).tolist() if kept else ([], [])
        return {"original_curve": original, "target_curve": target}


@dataclass(frozen=True)
class Closeness(Meter):
    """How near the counterfactual is to the original, by one measure on pixels."""

    name: str

    @property
    def gives(self) -> Mapping[str, str]:
        """The measure, without a network."""
        return {self.name: ""}

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Compare pixels."""
        return {self.name: CLOSENESS[self.name](batch.x, batch.x_cf)}


@dataclass(frozen=True)
class Perceptual(Meter):
    """LPIPS."""

    distance: Lpips
    network: str

    @property
    def gives(self) -> Mapping[str, str]:
        """LPIPS alone."""
        return {"lpips": self.network}

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Compare features."""
        return {"lpips": self.distance(batch.x, batch.x_cf).cpu()}
