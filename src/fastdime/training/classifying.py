"""The task of a classifier: tell two classes apart. Guides, task models and oracles are trained so."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fastdime.classifiers.spec import ClassifierSpec, build_network
from fastdime.errors import DataError, expected
from fastdime.training.augment import Augment
from fastdime.training.pictures import Pictures

VALIDATION_BATCH = 128


@dataclass(frozen=True)
class Classifying:
    """Learn one yes-or-no label from images.

    Attributes:
        spec: the network, and how it sees images.
        smoothing: how far labels are moved from 0 and 1.
        balance: weigh the rarer class up, so that both count the same.
    """

    train: Pictures
    valid: Pictures
    spec: ClassifierSpec
    augment: Augment = field(default_factory=Augment)
    smoothing: float = 0.0
    balance: bool = True

    def __post_init__(self) -> None:
        """Refuse labels that are not 0 or 1, or all the same."""
        for name, part in (("training", self.train), ("validation", self.valid)):
            found = set(part.labels.tolist())
            if found != {0.0, 1.0}:
                raise DataError(expected(f"labels of the {name} images", "both 0 and 1", sorted(found)))

    @property
    def images(self) -> int:
        """How many images there are to learn from."""
        return len(self.train)

    def describe(self) -> dict[str, Any]:
        """What is written down about the task."""
        return {
            "kind": "classifier",
            "images": len(self.train),
            "positive": int(self.train.labels.sum()),
            "size": list(self.train.levels.shape[1:]),
            "spec": self.spec.model_dump(mode="json"),
            "augment": vars(self.augment),
            "smoothing": self.smoothing,
            "balance": self.balance,
        }

    def build(self) -> nn.Module:
        """Make the network."""
        assert self.spec.architecture is not None
        return build_network(self.spec.architecture, **self.spec.arguments)

    def loss(self, model: nn.Module, rows: Tensor, random: torch.Generator) -> Tensor:
        """Cross entropy of each image, on logits."""
        labels = self.train.labels[rows]
        x = self.augment(self.train.x(rows), labels, random)
        soft = labels * (1 - 2 * self.smoothing) + self.smoothing
        return self._weight(labels) * self._entropy(model, x, soft)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Cross entropy, accuracy and AUROC on the validation images as they are."""
        from sklearn.metrics import roc_auc_score

        places = range(0, len(self.valid), VALIDATION_BATCH)
        parts = [torch.arange(first, min(first + VALIDATION_BATCH, len(self.valid))) for first in places]
        logits = torch.cat([self._logits(model, self.valid.x(rows)) for rows in parts]).cpu()
        labels = self.valid.labels
        entropy = self._weight(labels) * binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return {
            "loss": float(entropy.mean()),
            "accuracy": float(((logits > 0) == (labels > 0.5)).float().mean()),
            "auroc": float(roc_auc_score(labels.numpy(), logits.numpy())),
        }

    def _weight(self, labels: Tensor) -> Tensor:
        if not self.balance:
            return torch.ones_like(labels)
        share = self.train.labels.mean()
        return torch.where(labels > 0.5, 0.5 / share, 0.5 / (1 - share))

    def _entropy(self, model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
        logits = self._logits(model, x)
        return binary_cross_entropy_with_logits(logits, labels.to(logits), reduction="none")

    def _logits(self, model: nn.Module, x: Tensor) -> Tensor:
        device = next(model.parameters()).device
        classifier = self.spec.wrap(model)
        time = torch.zeros(len(x), dtype=torch.int64, device=device)
        out: Tensor = classifier.module(
            classifier.prepare(x.to(device)), *([time] if self.spec.timed else [])
        )
        return out.flatten()
