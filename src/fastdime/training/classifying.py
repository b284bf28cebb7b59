"""The task of a classifier: tell two classes apart. Guides, task models and oracles are trained so."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fastdime.classifiers.spec import ClassifierSpec, build_network
from fastdime.errors import DataError, expected
from fastdime.training.attack import attacked
from fastdime.training.augment import Augment
from fastdime.training.pictures import Pictures, data_hash
from fastdime.training.sheets import sheet

VALIDATION_BATCH = 128
SHOWN = 8  # mistakes of each kind on the sheet


@dataclass(frozen=True)
class Classifying:
    """Learn one yes-or-no label from images.

    Attributes:
        spec: the network, and how it sees images.
        smoothing: how far labels are moved from 0 and 1.
        balance: weigh the rarer class up, so that both count the same.
        levels: a network that is told the noise level is told one of so many, drawn at random: the images it
            will be asked about are clean, whatever level it is told.
    """

    train: Pictures
    valid: Pictures
    spec: ClassifierSpec
    augment: Augment = field(default_factory=Augment)
    smoothing: float = 0.0
    balance: bool = True
    levels: int = 1

    def __post_init__(self) -> None:
        """Refuse labels that are not 0 or 1, or all the same."""
        for name, part in (("training", self.train), ("validation", self.valid)):
            found = set(part.labels.tolist())
            if found != {0.0, 1.0}:
                remedy = "give more rows, or another --valid-share"
                raise DataError(
                    expected(f"labels of the {name} images", "both 0 and 1", sorted(found), remedy)
                )

    @property
    def images(self) -> int:
        """How many images there are to learn from."""
        return len(self.train)

    def describe(self) -> dict[str, Any]:
        """What is written down about the task."""
        told = {
            "kind": "classifier",
            "images": len(self.train),
            "data": data_hash(self.train, self.valid),
            "positive": int(self.train.labels.sum()),
            "size": list(self.train.levels.shape[1:]),
            "spec": self.spec.model_dump(mode="json"),
            "augment": self.augment.describe(),
            "smoothing": self.smoothing,
            "balance": self.balance,
        }
        return told if self.levels == 1 else told | {"levels": self.levels}

    def build(self) -> nn.Module:
        """Make the network."""
        assert self.spec.architecture is not None
        return build_network(self.spec.architecture, **self.spec.arguments)

    def draw(self, rows: Tensor, random: torch.Generator) -> tuple[Tensor, ...]:
        """Return changed images, labels and the level that the network is told, for an update."""
        return self._batch(self.train.x(rows), self.train.labels[rows], random)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Cross entropy of each image, on logits."""
        x, labels, times = batch
        if self.augment.attack:
            # Not through the wrapper of many processes, which waits for the gradients of all weights.
            plain = getattr(model, "module", model)
            before = plain.training
            plain.eval()  # batch norms learn nothing from looking for a change
            x = attacked(partial(self._logits, plain, times=times), x, labels, self.augment.attack)
            plain.train(before)
        return self._entropy(self._logits(model, x, times), labels)

    @torch.no_grad()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Cross entropy, accuracy and AUROC on the validation images as they are."""
        from sklearn.metrics import roc_auc_score

        logits, labels = self._valid_logits(model), self.valid.labels
        if not bool(logits.isfinite().all()):
            return dict.fromkeys(("loss", "accuracy", "auroc"), math.nan)  # the loop says what to do
        entropy = self._valid_weight() * binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return {
            "loss": float(entropy.mean()),
            "accuracy": float(((logits > 0) == (labels > 0.5)).float().mean()),
            "auroc": float(roc_auc_score(labels.numpy(), logits.numpy())),
        }

    @torch.no_grad()
    def picture(self, model: nn.Module) -> Tensor:
        """The worst mistakes on the validation images: above those called 0, below those called 1."""
        logits, labels = self._valid_logits(model), self.valid.labels
        rows = []
        for label, wrong in ((1.0, logits), (0.0, -logits)):
            there = (labels == label).nonzero()[:, 0]
            rows.append(self.valid.x(there[wrong[there].argsort()[:SHOWN]]))
        return sheet(rows)

    def _batch(self, x: Tensor, labels: Tensor, random: torch.Generator) -> tuple[Tensor, ...]:
        return (
            self.augment(x, labels, random),
            labels,
            torch.randint(self.levels, (len(x),), generator=random),
        )

    def _entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        soft = labels * (1 - 2 * self.smoothing) + self.smoothing
        entropy = binary_cross_entropy_with_logits(logits, soft.to(logits), reduction="none")
        return self._weight(labels).to(logits) * entropy

    def _valid_weight(self) -> Tensor:
        return self._weight(self.valid.labels)

    def _weight(self, labels: Tensor) -> Tensor:
        if not self.balance:
            return torch.ones_like(labels)
        share = self.train.labels.mean()
        return torch.where(labels > 0.5, 0.5 / share, 0.5 / (1 - share))

    def _valid_logits(self, model: nn.Module) -> Tensor:
        everything = torch.arange(len(self.valid))
        places = [everything[first : first + VALIDATION_BATCH] for first in everything[::VALIDATION_BATCH]]
        parts = [self._logits(model, self.valid.x(rows), torch.zeros_like(rows)) for rows in places]
        return torch.cat(parts).float().cpu()

    def _logits(self, model: nn.Module, x: Tensor, times: Tensor) -> Tensor:
        device = next(model.parameters()).device
        classifier = self.spec.wrap(model)
        ready = classifier.prepare(x.to(device))
        out: Tensor = classifier.module(ready, *([times.to(device)] if self.spec.timed else []))
        return out.flatten()
