"""What a classifier says of a picture and of its counterfactual."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fastdime.bundles import CLASSIFIER, INFO_FILE, load_bundle, shipped
from fastdime.classifiers.load import load_classifier
from fastdime.errors import InputError, expected
from fastdime.pipeline.options import described, network_of
from fastdime.pipeline.pairs import Batch, Pairs
from fastdime.runs import Record
from fastdime.scores import probabilities
from fastdime.types import Classifier, Images

RECORDED = ("predicted", "target", "p_before", "p_after", "valid")


@dataclass(frozen=True)
class Verdict:
    """About some pairs.

    Attributes:
        predicted: the class of the original.
        target: the class wanted for the counterfactual.
        p_before, p_after: probability of the target class.
        valid: whether the counterfactual is put into the target class.
        binary: whether there are just two classes.
    """

    predicted: Int[Tensor, " b"]
    target: Int[Tensor, " b"]
    p_before: Float[Tensor, " b"]
    p_after: Float[Tensor, " b"]
    valid: Bool[Tensor, " b"]
    binary: bool = True

    def confidence(self) -> tuple[Tensor, Tensor]:
        """Return the probability of class 1 before and after; with more than two classes, of the target."""
        turned = (self.target == 0) & self.binary
        before, after = (torch.where(turned, 1 - p, p) for p in (self.p_before, self.p_after))
        return before, after


class Judge(Protocol):
    """Gives a verdict about each pair."""

    @property
    def network(self) -> str:
        """Who it is."""

    def __call__(self, batch: Batch) -> Verdict:
        """Judge some pairs."""


@dataclass(frozen=True)
class Recorded:
    """The verdicts that a run wrote down, on the pictures that it saved."""

    records: Sequence[Record]
    binary: bool = True
    network: str = "classifier of the run"

    def __call__(self, batch: Batch) -> Verdict:
        """Look some pairs up."""
        found = [self.records[row] for row in batch.rows]
        columns = {name: torch.tensor([record[name] for record in found]) for name in RECORDED}
        return Verdict(**columns, binary=self.binary)


@dataclass(frozen=True)
class Asked:
    """A classifier that looks at the pictures; `targets` are the classes wanted, flip unless given."""

    classifier: Classifier
    network: str
    targets: Sequence[int] | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Move the network to its device."""
        if (network := network_of(self.classifier)) is not None:
            network.to(self.device)

    def __call__(self, batch: Batch) -> Verdict:
        """Judge some pairs."""
        before, after = (self.probabilities(x) for x in (batch.x, batch.x_cf))
        predicted, answer = before.argmax(1), after.argmax(1)
        if self.targets is not None:
            target = torch.tensor([self.targets[row] for row in batch.rows])
        elif before.shape[1] == 2:
            target = 1 - predicted
        else:
            wanted = "the class wanted for each image, because there are more than two"
            raise InputError(expected("--target", wanted, "flip", "use column:COLUMN of --labels"))
        if not 0 <= int(target.min()) <= int(target.max()) < before.shape[1]:
            got = f"{int(target.min())} to {int(target.max())}"
            raise InputError(expected("target", f"classes from 0 to {before.shape[1] - 1}", got))
        p_before, p_after = (p.gather(1, target[:, None])[:, 0] for p in (before, after))
        return Verdict(predicted, target, p_before, p_after, answer == target, before.shape[1] == 2)

    @torch.no_grad()
    def probabilities(self, x: Images) -> Tensor:
        """Return the probability of each class."""
        times = torch.zeros(len(x), dtype=torch.int64, device=self.device)
        return probabilities(self.classifier.logits(x.to(self.device), times)).cpu()


def classifier_of(pairs: Pairs) -> tuple[Classifier, str]:
    """Open the classifier that a run was made with.

    Raises:
        InputError: the run does not say where it is, or what is there now is another one.
    """
    told = pairs.config.get("classifier", {})
    source, remedy = str(told.get("source", "")), "give it with --classifier"
    if not source:
        raise InputError(expected("classifier", "one to ask", "none", remedy))
    try:
        classifier = open_classifier(source)
    except Exception as error:
        raise InputError(f"{' '.join(str(error).split())}; {remedy}") from None
    if described(classifier, source)["weights"] != told.get("weights"):
        got = "one with other weights"
        raise InputError(expected(f"classifier {source}", f"the one of {pairs.source}", got, remedy))
    return classifier, source


def bundle_of(pairs: Pairs) -> Path | None:
    """Return the folder of the bundle that a run's classifier is of; None if it is not there any more."""
    told = pairs.config.get("classifier", {})
    folder = Path(str(told.get("source", "")))
    if not (folder / INFO_FILE).is_file() or not (folder / CLASSIFIER).is_dir():
        return None
    classifier = load_classifier(folder / CLASSIFIER)
    return folder if described(classifier, None)["weights"] == told.get("weights") else None


def open_classifier(source: str) -> Classifier:
    """Open a classifier by path or module:function, or that of a bundle."""
    if source in shipped() or (Path(source) / INFO_FILE).exists():
        return load_bundle(source).classifier
    return load_classifier(source)
