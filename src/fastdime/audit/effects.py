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
        truth, truth_placebo: probabilities for the exact counterfactual and its placebo.
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
    truth_placebo: Numbers

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
            truth_placebo=chance("truth_placebo"),
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
    def effect(self) -> Numbers:
        """How much further the edit moves the model than the placebo; without a placebo, how far."""
        return self.size - self.placebo_size if self.controlled else self.size

    @property
    def controlled(self) -> bool:
        """Whether there is a placebo at all."""
        return not np.isnan(self.placebo).all()

    @property
    def exact(self) -> Self:
        """The same with exact counterfactuals in place of the edits."""
        nothing = np.full_like(self.truth, np.nan)
        return replace(
            self,
            after=self.truth,
            placebo=self.truth_placebo,
            logit_after=nothing,
            null=nothing,
            reseed=nothing,
        )
