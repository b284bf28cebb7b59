"""MNAC and CD: which attributes of a picture changed, by a network or by measurement."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from fastdime.data.phantoms.measure_attributes import attribute_labels, measure_attributes
from fastdime.data.table import SPLIT, Table
from fastdime.errors import FastdimeError, InputError, expected, unknown
from fastdime.features.network import FeatureNetwork
from fastdime.features.registry import open_features
from fastdime.metrics.attributes import (
    attributes_changed,
    correlation_difference,
    label_correlations,
)
from fastdime.pipeline.pairs import Batch
from fastdime.scoring.labels import Labels
from fastdime.scoring.meters import Meter, Values
from fastdime.scoring.phantoms import PhantomFolder
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import NAN, Row, missing
from fastdime.scoring.standing import Standing
from fastdime.scoring.verdicts import Verdict
from fastdime.types import Images

MEASURED = "measured"
TRAIN = "train"  # the split on which the published programs take the natural correlations


@dataclass(frozen=True)
class Attributes(Meter):
    """Attributes of originals and counterfactuals, kept for all pairs.

    Attributes:
        read: tells which attributes images have, (b, k).
        truth: correlation of each attribute with the query where nothing was changed; a sentence that says
            what is missing if it is not known.
    """

    network: str
    read: Callable[[Images], Tensor]
    query: int
    truth: Tensor | str
    seen: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def gives(self) -> Mapping[str, str]:
        """MNAC of each pair, CD of all."""
        return dict.fromkeys(("mnac", "cd"), self.network)

    def measure(self, batch: Batch, verdict: Verdict | None) -> Values:
        """Read the attributes."""
        before, after = self.read(batch.x), self.read(batch.x_cf)
        self.seen.update(zip(batch.rows, zip(before, after, strict=True), strict=True))
        return {"mnac": attributes_changed(before, after).double()}

    def conclude(self, names: list[str], standing: Standing) -> dict[str, Row]:
        """Compare the changes with the natural correlations."""
        if "cd" not in names:
            return {}
        if isinstance(self.truth, str):
            return {"cd": missing(self.truth, self.network)}
        chosen = standing.pairs("cd")
        kept = [pair for row, pair in self.seen.items() if chosen.rows[row]]
        blank = Row(NAN, n=len(kept), subset=chosen.name, network=self.network)
        if not kept:
            return {"cd": replace(blank, warning="no values")}
        before, after = (torch.stack(side) for side in zip(*kept, strict=True))
        constant = "nan" if standing.published else "zero"
        found = correlation_difference(before, after, self.query, self.truth, constant)
        return {"cd": replace(blank, value=found.value, warning=found.reason)}


def open_attributes(
    request: ScoreRequest, labels: Labels | None, phantom: PhantomFolder | None
) -> Attributes:
    """Open the source of attributes that a request names; on a phantom they are measured unless it does."""
    if request.attributes in (None, MEASURED):
        if phantom is None:
            got = "none"
            raise InputError(expected("attributes", "a network that tells them", got, "give --attributes"))
        return _measured(phantom)
    network = open_features(str(request.attributes), request.device)
    names, query = request.attribute_names, request.query
    where = names.index(query) if query in names else 0
    return Attributes(network.name, partial(_present, network), where, _natural(request, labels))


def _present(network: FeatureNetwork, x: Images) -> Tensor:
    """Tell which outputs are above 0."""
    found = network(x).cpu()
    if found.isnan().any():
        raise InputError(expected(f"attributes of {network.name}", "numbers", "NaN"))
    return found > 0


def _measured(phantom: PhantomFolder) -> Attributes:
    truth = attribute_labels(phantom.name, phantom.latents, phantom.labels)
    query = truth.place(str(phantom.config["shortcut"]))
    natural = label_correlations(truth.values, query)
    return Attributes(MEASURED, lambda x: measure_attributes(phantom.name, x).values, query, natural)


def _natural(request: ScoreRequest, labels: Labels | None) -> Tensor | str:
    """Return the natural correlations from a table of labels, or what is missing for them."""
    names, query = request.attribute_names, request.query
    if labels is None or not names or query is None:
        remedy = "give --labels, --attribute-names and --query"
        return expected("cd", "labels of the same attributes", "none", remedy)
    if query not in names:
        return unknown("--query", query, names)
    table = _training_part(labels.table)
    try:
        known = torch.tensor([table.binary(name) for name in names], dtype=torch.float64).T
        return label_correlations(known[~known.isnan().any(1)], names.index(query))
    except FastdimeError as error:
        return str(error)


def _training_part(table: Table) -> Table:
    if SPLIT not in table.groups or TRAIN not in table.groups[SPLIT]:
        return table
    return table.take(row for row, part in enumerate(table.groups[SPLIT]) if part == TRAIN)
