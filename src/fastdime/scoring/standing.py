"""Which pairs a metric is taken over."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastdime.errors import InputError, expected
from fastdime.scoring.catalogue import METRICS, Subset

Rows = NDArray[np.bool_]


@dataclass(frozen=True)
class Selection:
    """Some of the pairs, and what they are called."""

    rows: Rows
    name: str


@dataclass(frozen=True)
class Standing:
    """What is known of every pair.

    Attributes:
        read: its pictures could be read.
        valid: its counterfactual reaches the target; None without a classifier.
        correct: its original is classified correctly; None without labels.
        published: take the pairs of the published programs.
        subset: the pairs that were asked for, for all metrics but the flip rate.
    """

    read: Rows
    valid: Rows | None = None
    correct: Rows | None = None
    published: bool = False
    subset: Subset | None = None

    def pairs(self, metric: str) -> Selection:
        """Return the pairs of a metric.

        Raises:
            InputError: which pairs they are is not known.
        """
        known = METRICS[metric]
        usual = (known.published or known.subset) if self.published else known.subset
        return self.select(usual if metric == "fr" else self.subset or usual)

    def select(self, subset: Subset) -> Selection:
        """Return the pairs of a subset."""
        if subset == "all":
            return Selection(self.read, "all")
        if subset == "correct":
            if self.correct is None:
                wanted = "labels and a classifier, to know which originals are classified correctly"
                raise InputError(expected("subset correct", wanted, "none", "give --labels and --label"))
            return Selection(self.read & self.correct, "correct")
        if self.valid is None:
            return Selection(self.read, "all (validity unknown)")
        return Selection(self.read & self.valid, "valid")
