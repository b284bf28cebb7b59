"""The ideal observer: what the best possible classifier does with a phantom, in closed form.

It reads z and the shortcut s without error. With P = P(s = 1 | y = 1) = 1 - P(s = 1 | y = 0) its log-odds are
d' z + (2 s - 1) log(P / (1 - P)): a reference line for every audit.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fastdime.data.phantoms.design import Dials, parse_k, shares

CERTAIN = 1e-15  # a probability this near to 0 or 1 stands for the exact one
NODES = 200  # of the integral over z

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class IdealObserver:
    """How the best classifier trained on one design answers.

    Attributes:
        d_prime: distance of the classes in z.
        evidence: log-odds that the shortcut adds when it is there and takes away when not.
        chance: P(shortcut | y = 0) and P(shortcut | y = 1) of the design.
        label_noise: share of wrong labels on record.
    """

    d_prime: float
    evidence: float
    chance: tuple[float, float]
    label_noise: float

    @property
    def clarity(self) -> float:
        """What label noise leaves of every difference."""
        return 1 - 2 * self.label_noise

    def posterior(self, z: Numbers, shortcut: Numbers) -> Numbers:
        """Return P(task label = 1) of images with these latents."""
        odds = self.d_prime * np.asarray(z) + self.evidence * (2 * np.asarray(shortcut) - 1)
        return self.label_noise + self.clarity * _sigmoid(odds)

    def effect(self, z: Numbers) -> Numbers:
        """Return, for each image, how much more probable the shortcut makes the label."""
        return self.posterior(z, np.ones_like(z)) - self.posterior(z, np.zeros_like(z))

    @property
    def mad(self) -> float:
        """Mean absolute difference of the answer to an image and to its shortcut counterfactual."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        both = [np.abs(self.effect(nodes + sign * self.d_prime / 2)) @ weights for sign in (-1, 1)]
        return float(sum(both) / 2 / math.sqrt(2 * math.pi))

    @property
    def auroc_k(self) -> float:
        """AUROC on images of the design it was trained on."""
        return self._auroc(*self.chance)

    @property
    def auroc_u(self) -> float:
        """AUROC on images where the shortcut is independent of the class."""
        return self._auroc(0.5, 0.5)

    def _auroc(self, healthy: float, diseased: float) -> float:
        """Sum over what a healthy and a diseased image may show; their z differ by N(d', 2)."""
        both = diseased * healthy + (1 - diseased) * (1 - healthy)
        area = both * self._above(0.0)
        area += diseased * (1 - healthy) * self._above(2 * self.evidence)
        area += (1 - diseased) * healthy * self._above(-2 * self.evidence)
        return 0.5 + self.clarity * (area - 0.5)

    def _above(self, lead: float) -> float:
        """Return P(the diseased image scores higher), half of a tie counted, with this lead in log-odds."""
        if self.d_prime == 0:
            return 0.5 + 0.5 * float(np.sign(lead))
        return NormalDist().cdf((self.d_prime**2 + lead) / (self.d_prime * math.sqrt(2)))


def ideal_observer(k: str | float | None, dials: Dials) -> IdealObserver:
    """Return the ideal observer trained on a design.

    >>> round(ideal_observer(75, Dials()).mad, 2)
    0.25
    """
    design = parse_k(k)
    chance = shares(design, dials)
    diseased = 0.5 if design is None else min(max(chance[1], CERTAIN), 1 - CERTAIN)
    return IdealObserver(dials.d_prime, math.log(diseased / (1 - diseased)), chance, dials.label_noise)


def _sigmoid(odds: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-odds)))
