"""What audit.json says; docs/audit.md explains each field.

Changes are of a probability, between 0 and 1, unless a name says logit. Signed ones are before minus after,
as in the paper: a model that takes the shortcut for the class has a positive `md_with` and a negative
`md_without`.
"""

import math
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from fastdime.audit.verdict import Kind
from fastdime.metrics.statistics import Estimate

AUDIT_FILE, EFFECTS_FILE, PICTURES_FILE = "audit.json", "effects.csv", "pictures.csv"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Part):
    """A mean over images with its interval; null where there is none."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    clusters: int

    @classmethod
    def of(cls, found: Estimate) -> Self:
        """Take an estimate over; JSON has no NaN."""
        ends = (None if math.isnan(end) else round(end, 6) for end in (found.value, found.low, found.high))
        value, low, high = ends
        return cls(value=value, low=low, high=high, n=found.n, clusters=found.clusters)


class Flips(_Part):
    """Decisions at one half that the edit turned, and McNemar's p-value."""

    to_one: int
    to_zero: int
    p: float


class Areas(_Part):
    """AUROC of the task before and after the edit; labels of the task are needed for nothing else."""

    before: float
    after: float
    change: Interval
    p: float | None


class Stratum(_Part):
    """Some of the images: those with one value of a column, or one cell of shortcut and task."""

    by: str
    value: str
    mad: Interval
    md: Interval
    effect: Interval


class Truth(_Part):
    """The same numbers from exact counterfactuals, which phantoms have."""

    mad: Interval
    md_with: Interval
    md_without: Interval
    placebo: Interval
    effect: Interval


class Row(_Part):
    """One output of one model, and one shortcut.

    Attributes:
        mad: mean absolute change by the edit, as in the paper.
        md_with, md_without: mean signed change where the shortcut was removed, and where it was added.
        logit: mean absolute change of the log-odds, and `logit_with`, `logit_without` signed.
        placebo, null, reseed: mean absolute change by a placebo edit, by the same chain without guidance, and
            between two edits of different seeds.
        effect: headline; mean absolute change above that of the placebo.
        complier: the same over images where the oracle agrees that the shortcut went or came.
        p, p_adjusted: of "no effect", and after Holm's adjustment for all rows of the audit.
        p_equivalence: of "an effect beyond the margin".
        size: d_z, the mean effect in units of its spread.
        detectable: the smallest effect that 80 % of such audits would find.
    """

    shortcut: str
    model: str
    output: str
    verdict: Kind
    reason: str
    effect: Interval
    mad: Interval
    md_with: Interval
    md_without: Interval
    logit: Interval
    logit_with: Interval
    logit_without: Interval
    placebo: Interval
    null: Interval
    reseed: Interval
    complier: Interval
    p: float
    p_adjusted: float
    p_equivalence: float | None
    size: float | None
    detectable: float | None
    flips: Flips
    auroc: Areas | None = None
    truth: Truth | None = None
    strata: tuple[Stratum, ...] = ()


class SelfTest(_Part):
    """A test of the generator itself."""

    name: str
    passed: bool
    value: float
    limit: float
    text: str


class Compliance(_Part):
    """Whether the shortcut really went or came, by someone who had no part in the edit."""

    oracle: str
    independent: bool
    removed: Interval
    added: Interval


class Generator(_Part):
    """What was done about one shortcut; `folder` has the pictures, relative to the audit."""

    shortcut: str
    bundle: str | None
    method: str | None
    settings: dict[str, Any]
    folder: str
    images: int
    removals: int
    additions: int
    failed: int
    compliance: Compliance | None
    collateral: dict[str, Interval]
    self_tests: tuple[SelfTest, ...]


class Audit(_Part):
    """Everything that an audit found."""

    format: Literal[1] = 1
    versions: dict[str, str]
    data: str
    images: int
    task: str | None
    group: str | None
    by: tuple[str, ...]
    margin: float
    alpha: float
    seed: int
    generators: tuple[Generator, ...]
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
