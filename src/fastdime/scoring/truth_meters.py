"""Meters that know the exact answer: for phantoms."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fastdime.data.phantoms.measure import measure
from fastdime.data.phantoms.phantom import SEEN
from fastdime.metrics import truth
from fastdime.pipeline.pairs import Batch
from fastdime.scores import log_odds, probabilities
from fastdime.scoring.meters import Meter, Values
from fastdime.scoring.phantoms import PhantomFolder
from fastdime.scoring.verdicts import Verdict
from fastdime.types import Classifier, Images

MASKS = ("mask_overlap", "mask_recall")
PIXELS = ("region_error", "region_error_ratio", "outside_change", "placebo_change", *MASKS)
MEASURED = ("measured_flip", "measured_residual", "latent_change")
ORACLES = {
    "shortcut": ("oracle_flip", "oracle_residual"),
    "complete": ("complete_flip",),
    "task": ("task_change",),
}


@dataclass(frozen=True)
class Exact(Meter):
    """Compares with the exact counterfactual, where the shortcut was to be switched."""

    phantom: PhantomFolder

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Leave out pairs of which something else was asked."""
        there = self.phantom.shortcut[batch.rows]
        asked = torch.ones_like(there, dtype=torch.bool)
        if verdict is not None and self.phantom.by_target:
            asked = verdict.target == 1 - there
        found = self.compare(batch, self.phantom.others(batch.rows, batch.x))
        return {name: values.double().where(asked, float("nan")) for name, values in found.items()}

    @abstractmethod
    def compare(self, batch: Batch, exact: Images) -> Mapping[str, Tensor]:
        """Return one number a pair."""

    def wanted(self, batch: Batch) -> Tensor:
        """Tell whether the shortcut should show in the counterfactual."""
        return self.phantom.shortcut[batch.rows] == 0


@dataclass(frozen=True)
class ExactPixels(Exact):
    """Errors, changes and overlaps of pixels."""

    @property
    def gives(self) -> Mapping[str, str]:
        """No network."""
        return dict.fromkeys(PIXELS, "")

    def compare(self, batch: Batch, exact: Images) -> Mapping[str, Tensor]:
        """Compare pixels with the truth."""
        x, x_cf = batch.x, batch.x_cf
        region = (x - exact).abs().amax(1, keepdim=True) > SEEN
        placebo, shows = self.phantom.placebo_regions(batch.rows, x), self.phantom.placebo[batch.rows] == 1
        found = {
            "region_error": truth.region_error(x_cf, exact, region),
            "region_error_ratio": truth.region_error_ratio(x, x_cf, exact, region),
            "outside_change": truth.outside_change(x, x_cf, region),
            "placebo_change": truth.placebo_change(x, x_cf, placebo, shows, region),
        }
        masks = [truth.mask_overlap, truth.mask_recall]
        nothing = torch.full((len(x),), float("nan"))
        for name, overlap in zip(MASKS, masks, strict=True):
            found[name] = nothing if batch.mask is None else overlap(batch.mask, region)
        return found


@dataclass(frozen=True)
class Measured(Exact):
    """The shortcut and the task latent, read from the pixels without a network."""

    @property
    def gives(self) -> Mapping[str, str]:
        """Measurements."""
        return dict.fromkeys(MEASURED, "measured")

    def compare(self, batch: Batch, exact: Images) -> Mapping[str, Tensor]:
        """Measure original, counterfactual and truth."""
        before, after, right = (measure(self.phantom.name, x) for x in (batch.x, batch.x_cf, exact))
        return {
            "measured_flip": after.shows == self.wanted(batch),
            "measured_residual": truth.residual(before.shortcut, after.shortcut, right.shortcut),
            "latent_change": (after.z - before.z).abs(),
        }


@dataclass(frozen=True)
class Oracle(Exact):
    """What an independent network says: whether it sees the shortcut, or how its answer to the task moves."""

    oracle: Classifier
    name: str
    network: str

    @property
    def gives(self) -> Mapping[str, str]:
        """What this oracle is there for."""
        return dict.fromkeys(ORACLES[self.name], self.network)

    def compare(self, batch: Batch, exact: Images) -> Mapping[str, Tensor]:
        """Ask about original, counterfactual and truth."""
        before, after, right = (self._logits(x) for x in (batch.x, batch.x_cf, exact))
        if self.name == "task":
            change = probabilities(after)[:, 1] - probabilities(before)[:, 1]
            return {"task_change": change.abs()}
        one = torch.ones(len(before), dtype=torch.int64)
        odds = [log_odds(logits, one) for logits in (before, after, right)]
        seen = (odds[1] > 0) == self.wanted(batch)
        if self.name == "complete":
            return {"complete_flip": seen}
        return {"oracle_flip": seen, "oracle_residual": truth.residual(*odds)}

    @torch.no_grad()
    def _logits(self, x: Images) -> Tensor:
        return self.oracle.logits(x, torch.zeros(len(x), dtype=torch.int64))
