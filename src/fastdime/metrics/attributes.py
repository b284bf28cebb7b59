"""What else a counterfactual changes: the person (FVA), other attributes (MNAC), attributes together (CD).

Attributes are yes or no, read from each image and from its counterfactual by a network or by measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fastdime.errors import InputError, expected

SAME = 0.5  # cosine of two faces above which the published programs take them for one person
ROUNDING = 1e-4  # a cosine computed in float32 may leave [-1, 1] by less
SHOWN = 8  # attributes that a reason names
Yes = Bool[Tensor, "b k"]


def same_identity(cosine: Float[Tensor, " b"], threshold: float = SAME) -> Float[Tensor, " b"]:
    """Return 1 where a face and its counterfactual are the same person, else 0; the mean is FVA.

    Args:
        cosine: similarity of the two face features; NaN, for a face that was not found, stays NaN.

    >>> same_identity(torch.tensor([0.9, 0.5, torch.nan])).tolist()
    [1.0, 0.0, nan]
    """
    if cosine.ndim != 1 or len(cosine) == 0 or not cosine.is_floating_point():
        got = f"{cosine.dtype} {tuple(cosine.shape)}"
        raise InputError(expected("cosine", "one float for each of one or more images", got))
    wrong = cosine[cosine.abs() > 1 + ROUNDING]
    if len(wrong):
        raise InputError(expected("cosine", "numbers from -1 to 1", f"{float(wrong[0]):.4g}"))
    return torch.where(cosine.isnan(), cosine, (cosine > threshold).to(cosine))


def attributes_changed(before: Tensor, after: Tensor) -> Int[Tensor, " b"]:
    """Return how many attributes of each image changed; the mean is MNAC.

    All attributes count, the one that was meant to change too: this is how the published programs count, so 1
    is the best that a counterfactual of a listed attribute can reach.

    >>> before, after = torch.tensor([[True, False, True]]), torch.tensor([[False, False, False]])
    >>> attributes_changed(before, after).tolist()
    [2]
    """
    _check_pair(before, after)
    return (before != after).sum(1)


@dataclass(frozen=True)
class CorrelationDifference:
    """How far counterfactuals change attributes together that do not belong together, or the reverse.

    Attributes:
        value: CD, the sum over attributes of |correlation - true correlation|; NaN if that is not known.
        correlations: of the change of each attribute with that of the query; NaN where one never varies.
        n: number of images.
        reason: why the value is NaN, or what was counted as 0; empty if there is nothing to say.
    """

    value: float
    correlations: Float[Tensor, " k"]
    n: int
    reason: str = ""


@dataclass(frozen=True)
class CorrelationCounts:
    """Sums from which CD follows, for images that come in parts; whole numbers, so that no order matters.

    >>> yes, no = torch.ones(3, 2, dtype=torch.bool), torch.zeros(3, 2, dtype=torch.bool)
    >>> counts = CorrelationCounts.start(attributes=2, query=0).update(yes, no).update(no, yes)
    >>> counts.compute(torch.tensor([1.0, 0.25])).value
    0.75
    """

    query: int
    n: int
    sums: Int[Tensor, " k"]
    squares: Int[Tensor, " k"]
    products: Int[Tensor, " k"]

    @classmethod
    def start(cls, attributes: int, query: int) -> "CorrelationCounts":
        """Begin with no image.

        Args:
            query: place of the attribute that the counterfactuals are to change.
        """
        if not 0 <= query < attributes:
            raise InputError(expected("query", f"a place from 0 to {attributes - 1}", query))
        return cls(query, 0, *(torch.zeros(attributes, dtype=torch.int64) for _ in range(3)))

    def update(self, before: Tensor, after: Tensor) -> "CorrelationCounts":
        """Return the counts with more images."""
        _check_pair(before, after)
        return self._with(after.cpu().long() - before.cpu().long())

    def merge(self, other: "CorrelationCounts") -> "CorrelationCounts":
        """Return the counts of both."""
        if (self.query, len(self.sums)) != (other.query, len(other.sums)):
            wanted, got = (f"{len(c.sums)} attributes and query {c.query}" for c in (self, other))
            raise InputError(expected("counts to merge", wanted, got))
        sums = (getattr(self, name) + getattr(other, name) for name in ("sums", "squares", "products"))
        return CorrelationCounts(self.query, self.n + other.n, *sums)

    def correlations(self) -> Float[Tensor, " k"]:
        """Return the Pearson correlation of each attribute with the query; NaN where one never varies."""
        spread = (self.n * self.squares - self.sums**2).double()
        together = self.n * self.products - self.sums * self.sums[self.query]
        return together / (spread * spread[self.query]).sqrt()

    def compute(
        self, truth_correlations: Float[Tensor, " k"], constant: str = "nan"
    ) -> CorrelationDifference:
        """Return CD; see `correlation_difference`."""
        truth = _check_truth(truth_correlations, len(self.sums), constant)
        if self.n == 0:
            raise InputError(expected("images for CD", "at least one", "none"))
        found = self.correlations()
        reason = _reason(found, truth, self.query, self.n)
        if constant == "nan" or found[self.query].isnan():
            return CorrelationDifference(float((found - truth).abs().sum()), found, self.n, reason)
        value = float((found.nan_to_num() - truth.nan_to_num()).abs().sum())
        return CorrelationDifference(value, found, self.n, f"{reason}; counted as 0" if reason else "")

    def _with(self, rows: Int[Tensor, "b k"]) -> "CorrelationCounts":
        if rows.shape[1] != len(self.sums):
            raise InputError(expected("attributes", f"{len(self.sums)} an image", rows.shape[1]))
        sums, squares = self.sums + rows.sum(0), self.squares + rows.square().sum(0)
        products = self.products + (rows * rows[:, [self.query]]).sum(0)
        return CorrelationCounts(self.query, self.n + len(rows), sums, squares, products)


def correlation_difference(
    before: Tensor,
    after: Tensor,
    query: int,
    truth_correlations: Float[Tensor, " k"],
    constant: str = "nan",
) -> CorrelationDifference:
    """Return CD: whether attributes change together as they occur together.

    Args:
        query: place of the attribute that the counterfactuals are to change.
        truth_correlations: how the labels of each attribute go with those of the query; `label_correlations`.
        constant: what to do with an attribute that no counterfactual changes, or that all change alike, and
            so has no correlation: "nan" makes CD NaN, as in the programs of DiME and FastDiME; "zero" counts
            the correlation as 0, as in that of ACE. Where the query itself never varies CD is NaN either way.

    >>> before = torch.tensor([[True, False], [False, False], [True, True]])
    >>> after = torch.tensor([[False, False], [True, False], [False, True]])
    >>> answer = correlation_difference(before, after, 0, torch.tensor([1.0, 0.25]))
    >>> answer.value, answer.reason
    (nan, 'no correlation: the change of attribute 1 is the same in all 3 images')
    >>> correlation_difference(before, after, 0, torch.tensor([1.0, 0.25]), constant="zero").value
    0.25
    """
    _check_pair(before, after)
    return (
        CorrelationCounts.start(before.shape[1], query)
        .update(before, after)
        .compute(truth_correlations, constant)
    )


def label_correlations(labels: Tensor, query: int) -> Float[Tensor, " k"]:
    """Return how each attribute goes with the query over labelled images; NaN where a label never varies.

    Args:
        labels: (n, k), 1 and 0 or True and False.

    >>> label_correlations(torch.tensor([[1, 1, 0], [0, 0, 1], [1, 1, 0]]), query=0).tolist()
    [1.0, 1.0, -1.0]
    """
    if labels.ndim != 2 or 0 in labels.shape:
        raise InputError(expected("labels", "shape (images, attributes)", tuple(labels.shape)))
    wrong = labels[(labels != 0) & (labels != 1)]
    if len(wrong):
        remedy = "leave out images whose labels are not known"
        raise InputError(expected("labels", "1 and 0", f"{wrong[0].item():.4g}", remedy))
    return CorrelationCounts.start(labels.shape[1], query)._with(labels.cpu().long()).correlations()


def _check_pair(before: Tensor, after: Tensor) -> None:
    for what, values in (("before", before), ("after", after)):
        if values.ndim != 2 or 0 in values.shape or values.dtype != torch.bool:
            got = f"{values.dtype} {tuple(values.shape)}"
            raise InputError(expected(f"attributes {what}", "True or False, (images, attributes)", got))
    if before.shape != after.shape:
        raise InputError(expected("attributes after", f"shape {tuple(before.shape)}", tuple(after.shape)))


def _check_truth(truth: Tensor, attributes: int, constant: str) -> Float[Tensor, " k"]:
    if truth.shape != (attributes,):
        raise InputError(
            expected("truth_correlations", f"{attributes} numbers", f"shape {tuple(truth.shape)}")
        )
    if (truth.abs() > 1 + ROUNDING).any():
        raise InputError(expected("truth_correlations", "from -1 to 1", f"{float(truth.abs().max()):.4g}"))
    if constant not in ("nan", "zero"):
        raise InputError(expected("constant", "nan or zero", repr(constant)))
    return truth.cpu().double()


def _reason(found: Tensor, truth: Tensor, query: int, n: int) -> str:
    """Say which correlations there are not, and why."""
    if n == 1:
        return "no correlation: there is 1 image only"
    if found[query].isnan():
        return f"no correlation: the query, attribute {query}, changes the same way in all {n} images"
    unchanged, unlabelled = (_named(values.isnan().nonzero()[:, 0].tolist()) for values in (found, truth))
    reasons = [f"the change of {unchanged} is the same in all {n} images"] if unchanged else []
    reasons += [f"the true correlation of {unlabelled} is NaN"] if unlabelled else []
    return f"no correlation: {' and '.join(reasons)}" if reasons else ""


def _named(places: Sequence[int]) -> str:
    if not places:
        return ""
    shown = ", ".join(map(str, places[:SHOWN])) + (", ..." if len(places) > SHOWN else "")
    return f"attribute {shown}" if len(places) == 1 else f"attributes {shown}"
