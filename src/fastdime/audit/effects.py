"""What the edits of a shortcut do to one output of a model, image by image."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastdime.audit.answers import EDIT, ORIGINAL, Answers

Numbers = NDArray[np.float64]  # one number an image


@dataclass(frozen=True, eq=False)
class Effects:
    """One number an image; NaN where a picture is missing.

    Attributes:
        before, after: probabilities for the original and for its edit; `logit_` the log-odds.
        placebo, null, reseed: probabilities for the control pictures.
        has: whether the original shows the shortcut, so that the edit removes it.
        truth: probability for the exact counterfactual.
    """

    before: Numbers
    after: Numbers
    logit_before: Numbers
    logit_after: Numbers
    placebo: Numbers
    null: Numbers
    reseed: Numbers
    has: NDArray[np.bool_]
    truth: Numbers

    @classmethod
    def of(cls, answers: Answers, output: int, shortcut: Sequence[float]) -> Self:
        """Take one output of a model."""

        def chance(kind: str) -> Numbers:
            if kind not in answers.logits:
                return np.full(len(answers.ids), np.nan)
            found: Numbers = answers.probabilities(kind)[:, output]
            return found

        return cls(
            before=chance(ORIGINAL),
            after=chance(EDIT),
            logit_before=answers.logits[ORIGINAL][:, output],
            logit_after=answers.logits[EDIT][:, output],
            placebo=chance("placebo"),
            null=chance("null"),
            reseed=chance("reseed"),
            has=np.array(shortcut) == 1,
            truth=chance("truth"),
        )

    @property
    def change(self) -> Numbers:
        """Before minus after, as in the paper."""
        return self.before - self.after

    @property
    def logit_change(self) -> Numbers:
        """The same for log-odds."""
        return self.logit_before - self.logit_after

    @property
    def size(self) -> Numbers:
        """How far the edit moves the model."""
        size: Numbers = np.abs(self.change)
        return size

    @property
    def placebo_size(self) -> Numbers:
        """How far the placebo moves it."""
        size: Numbers = np.abs(self.before - self.placebo)
        return size

    @property
    def crossed(self) -> Numbers:
        """How far two edits with different noise move the model the same way; negative if they differ.

        An edit also moves a model by chance, and one that goes nowhere would still seem to go somewhere. Each
        edit is counted in the direction of the other, so that chance cancels in the mean. Without a second
        edit it is how far the first goes.
        """
        other = self.before - self.reseed
        both = (np.sign(other) * self.change + np.sign(self.change) * other) / 2
        found: Numbers = np.where(np.isnan(other), self.size, both)
        return found

    @property
    def agreed(self) -> Numbers:
        """The smaller of the two moves, or nothing where they go different ways: what is sure."""
        other = self.before - self.reseed
        both = np.where(np.sign(other) == np.sign(self.change), np.minimum(self.size, np.abs(other)), 0.0)
        found: Numbers = np.where(np.isnan(other), self.size, both)
        return found

    @property
    def effect(self) -> Numbers:
        """How much further the edits move the model than the placebo; without a placebo, how far."""
        return self.crossed - self.placebo_size if self.controlled else self.crossed

    @property
    def least(self) -> Numbers:
        """The same for what is sure; never above the effect."""
        least = np.minimum(self.agreed, self.crossed)
        return least - self.placebo_size if self.controlled else least

    @property
    def controlled(self) -> bool:
        """Whether there is a placebo at all."""
        return not np.isnan(self.placebo).all()

    @property
    def exact(self) -> Self:
        """The same with exact counterfactuals in place of the edits, beside the same placebo."""
        nothing = np.full_like(self.truth, np.nan)
        return replace(self, after=self.truth, logit_after=nothing, null=nothing, reseed=nothing)
