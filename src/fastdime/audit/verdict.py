"""What the effects of an audit prove, in one of three answers and one sentence.

The effects are one number an image: how much switching the shortcut moves the output, minus what a placebo
edit moves it. Of two edits with different noise the effect is what they have in common, and the low end of
its interval is of the part that is sure. With alpha = 0.05 each claim is made in about 5 of 100 audits where
it should not be (in 7 with 30 images and strongly skewed effects):

- `no reliance above m`: the whole interval of level 1 - 2 alpha lies below m, and unless the effect is
  negative the two one-sided tests (TOST) say the same. It comes first: an effect that is above zero but
  surely below m is no reliance above m.
- `relies`: the whole interval lies above 0 and the p-value of the sign-flip test (after Holm's adjustment, if
  more was asked) is at most alpha. The effect itself may be smaller than m; it is not surely so.
- `cannot tell`: anything else, also fewer than 10 images or 5 patients, or effects without any spread.

Without a placebo the effect is the whole change, and every edit changes something: `relies` is never claimed.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from numpy.typing import ArrayLike

from fastdime.audit.evidence import sign_flip
from fastdime.audit.sizes import check_margin, check_share, equivalence_of, minimum_detectable
from fastdime.errors import InputError, expected
from fastdime.metrics.clusters import clusters
from fastdime.metrics.numbers import Groups, as_numbers, check_equal_length
from fastdime.metrics.statistics import Estimate, mean_interval

FEWEST_IMAGES, FEWEST_CLUSTERS = 10, 5
Kind = Literal["relies", "no reliance above m", "cannot tell"]


@dataclass(frozen=True)
class Evidence:
    """What is known about the mean effect above placebo.

    Attributes:
        estimate: mean with an interval of level 1 - 2 alpha.
        margin: m, below which an effect is of no matter.
        p: of "no effect", against an effect above zero.
        p_equivalence: of "an effect beyond the margin".
        detectable: the smallest effect that `power` of such audits would find.
        spread: whether the effects differ at all.
        controlled: whether the effects are above those of a placebo.
    """

    estimate: Estimate
    margin: float
    p: float
    p_equivalence: float
    detectable: float
    alpha: float = 0.05
    power: float = 0.8
    spread: bool = True
    controlled: bool = True


@dataclass(frozen=True)
class Verdict:
    """An answer, and why."""

    kind: Kind
    reason: str


def weigh(
    effects: ArrayLike,
    margin: float,
    groups: Groups | None = None,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    seed: int = 0,
    least: ArrayLike | None = None,
) -> Evidence:
    """Gather what the effects of the images prove.

    Args:
        effects: for each image the effect of the shortcut minus that of the placebo.
        groups: the patient of each image.
        least: for each image the part of the effect that is sure: for the low end of the interval, and p.

    >>> found = weigh([0.21, 0.18, 0.25, 0.3, 0.2, 0.22, 0.19, 0.27, 0.24, 0.2], 0.05)
    >>> verdict(found).kind
    'relies'
    """
    check_margin(margin)
    check_share("alpha", alpha, 0.5)
    numbers = as_numbers("effects", effects)
    sure = numbers if least is None else as_numbers("least", least)
    check_equal_length("effects and least", numbers, sure)
    found = clusters(numbers, groups)
    estimate, lower = (
        mean_interval(part, groups, level=1 - 2 * alpha, seed=seed) for part in (numbers, sure)
    )
    return Evidence(
        replace(estimate, low=min(estimate.low, lower.low)),
        margin,
        sign_flip(sure, groups, alternative="greater", seed=seed),
        equivalence_of(found, margin),
        minimum_detectable(found.error, len(found), alpha=alpha, power=power, alternative="greater"),
        alpha,
        power,
        found.error > 0,
    )


def verdict(evidence: Evidence, p: float | None = None) -> Verdict:
    """Answer whether the model relies on the shortcut; the rules stand at the top of this module.

    Args:
        p: the p-value after an adjustment for several questions, see `fastdime.audit.evidence.holm`.

    >>> verdict(weigh([0.2, 0.3, 0.1], 0.05))
    Verdict(kind='cannot tell', reason='there are 3 images, and at least 10 are needed')
    """
    chance = evidence.p if p is None else p
    if not 0 <= chance <= 1:
        raise InputError(expected("p", "a number from 0 to 1", chance))
    if missing := _missing(evidence):
        return Verdict("cannot tell", missing)
    found, margin, alpha = evidence.estimate, evidence.margin, evidence.alpha
    shown = _shown(evidence)
    if found.high < margin and (found.value < 0 or not evidence.spread or evidence.p_equivalence <= alpha):
        more = ": the placebo moves the model more" if found.high < 0 else ""
        return Verdict("no reliance above m", f"{shown} lies below {margin:.3g}{more}")
    if not evidence.controlled:
        return Verdict("cannot tell", f"{shown}, and no placebo says how much of it any edit would do")
    if found.low > 0 and chance <= alpha:
        return Verdict("relies", f"{shown} lies above zero (p = {chance:.2g})")
    return Verdict("cannot tell", f"{shown} {_open(evidence, chance)}")


def _missing(evidence: Evidence) -> str:
    """Say why nothing can be concluded whatever the numbers are; empty if something can."""
    found = evidence.estimate
    if found.n < FEWEST_IMAGES:
        return f"there are {found.n} images, and at least {FEWEST_IMAGES} are needed"
    if found.clusters < FEWEST_CLUSTERS:
        return f"the images come from {found.clusters} patients, and at least {FEWEST_CLUSTERS} are needed"
    if not evidence.spread and found.value == 0:
        return f"the effect is {found.value:.3g} in every image, as if the predictions were constant"
    return ""


def _shown(evidence: Evidence) -> str:
    found = evidence.estimate
    images = f"{found.n} images"
    who = images if found.clusters == found.n else f"{images} of {found.clusters} patients"
    level = 100 * (1 - 2 * evidence.alpha)
    ends = f"{found.low:.3g} to {found.high:.3g}"
    what = "effect above placebo" if evidence.controlled else "change by the edit"
    return f"the {what} is {found.value:.3g} in {who}, and its {level:g} % interval {ends}"


def _open(evidence: Evidence, chance: float) -> str:
    """Say what the interval leaves open, and what an audit like this could see."""
    found, margin = evidence.estimate, evidence.margin
    if found.low > 0:
        state = f"lies above zero, but p = {chance:.2g} is not below {evidence.alpha:g}"
    elif found.high < margin:
        state = f"lies below {margin:.3g}, but p = {evidence.p_equivalence:.2g} of the t-tests is too high"
    else:
        state = f"holds both zero and effects beyond {margin:.3g}"
    if math.isnan(evidence.detectable):
        return state
    share, least = f"{100 * evidence.power:g} %", f"{evidence.detectable:.3g}"
    return f"{state}; the smallest effect that {share} of such audits would find is {least}"
