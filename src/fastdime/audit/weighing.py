"""What the effects on one output of one model come to: intervals, tests and a verdict."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fastdime.audit.areas import auroc_change
from fastdime.audit.effects import Effects, Numbers
from fastdime.audit.evidence import holm, mcnemar
from fastdime.audit.schema import Areas, Flips, Interval, Row, Stratum, Truth
from fastdime.audit.sizes import effect_size
from fastdime.audit.verdict import Evidence, Verdict, verdict, weigh
from fastdime.metrics.statistics import mean_interval

CELLS = "shortcut x task"
Rows = NDArray[np.bool_]  # which images


@dataclass(frozen=True, eq=False)
class Subjects:
    """What is known of the images of an audit, in their order.

    Attributes:
        groups: patient of each image, or None.
        task: label of the task, NaN where it is not known; None without a task.
        complied: 1 where the oracle agrees with the edit, 0 where not; None without an oracle.
        by: columns whose values are told apart.
    """

    groups: Sequence[str] | None = None
    task: Numbers | None = None
    complied: Numbers | None = None
    by: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """How sure to be: the margin below which an effect is of no matter, and the share of false claims."""

    margin: float = 0.05
    alpha: float = 0.05
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Weighed:
    """Effects on one output with what they prove, before it is known how many questions were asked."""

    effects: Effects
    subjects: Subjects
    rules: Rules
    evidence: Evidence

    @classmethod
    def of(cls, effects: Effects, subjects: Subjects, rules: Rules) -> "Weighed":
        """Weigh the effects of all images that have one."""
        everywhere = np.ones(len(effects.has), dtype=bool)
        return cls(effects, subjects, rules, _evidence(effects, subjects, rules, everywhere))

    def verdict(self, p_adjusted: float) -> Verdict:
        """Answer for all images; "no reliance" must also hold where the shortcut went or came, if known.

        Otherwise a generator that fails would clear every model.
        """
        answer, complied = verdict(self.evidence, p_adjusted), self.subjects.complied
        if answer.kind != "no reliance above m" or complied is None or (complied == 1).all():
            return answer
        among = verdict(_evidence(self.effects, self.subjects, self.rules, complied == 1))
        if among.kind == answer.kind:
            return answer
        switched = f"{int((complied == 1).sum())} of {len(complied)} images"
        sentence = f"the oracle sees the shortcut switched in {switched} only, and over these {among.reason}"
        return Verdict("cannot tell", sentence)

    def mean(self, values: Numbers, where: Rows | None = None) -> Interval:
        """Return the mean of some images with its 95 % interval; images without a number are left out."""
        shown = ~np.isnan(values) if where is None else ~np.isnan(values) & where
        groups = _chosen(self.subjects.groups, shown)
        return Interval.of(mean_interval(values[shown], groups, seed=self.rules.seed))

    def effect(self, where: Rows | None = None) -> Interval:
        """Return the mean effect; the low end of its interval is of the part that is sure."""
        found, least = self.mean(self.effects.effect, where), self.mean(self.effects.least, where)
        if found.low is None or least.low is None:
            return found
        return found.model_copy(update={"low": min(found.low, least.low)})

    def row(self, shortcut: str, model: str, output: str, p_adjusted: float) -> Row:
        """Write everything down."""
        found, has, evidence = self.effects, self.effects.has, self.evidence
        answer = self.verdict(p_adjusted)
        return Row(
            shortcut=shortcut,
            model=model,
            output=output,
            verdict=answer.kind,
            reason=answer.reason,
            effect=self.effect(),
            mad=self.mean(found.size),
            md_with=self.mean(found.change, has),
            md_without=self.mean(found.change, ~has),
            logit=self.mean(np.abs(found.logit_change)),
            logit_with=self.mean(found.logit_change, has),
            logit_without=self.mean(found.logit_change, ~has),
            placebo=self.mean(found.placebo_size),
            null=self.mean(np.abs(found.before - found.null)),
            reseed=self.mean(np.abs(found.after - found.reseed)),
            complier=self._complier(),
            p=evidence.p,
            p_adjusted=p_adjusted,
            p_equivalence=_or_none(evidence.p_equivalence),
            size=_or_none(self._size()),
            detectable=_or_none(evidence.detectable),
            flips=self._flips(),
            auroc=self._areas(),
            truth=self._truth(),
            strata=tuple(self._strata()),
        )

    def _complier(self) -> Interval:
        complied = self.subjects.complied
        none = np.zeros(len(self.effects.has), dtype=bool)
        return self.effect(none if complied is None else complied == 1)

    def _size(self) -> float:
        shown = ~np.isnan(self.effects.effect)
        return effect_size(self.effects.effect[shown], _chosen(self.subjects.groups, shown))

    def _flips(self) -> Flips:
        shown = ~np.isnan(self.effects.change)
        before, after = ((p[shown] > 0.5).astype(float) for p in (self.effects.before, self.effects.after))
        found = mcnemar(before, after, _chosen(self.subjects.groups, shown))
        return Flips(to_one=found.to_one, to_zero=found.to_zero, p=found.p)

    def _areas(self) -> Areas | None:
        task = self.subjects.task
        if task is None:
            return None
        shown = ~np.isnan(task) & ~np.isnan(self.effects.change)
        if len(np.unique(task[shown])) < 2:
            return None
        before, after = self.effects.before[shown], self.effects.after[shown]
        found = auroc_change(task[shown], before, after, _chosen(self.subjects.groups, shown))
        change = Interval.of(found.difference)
        p = None if math.isnan(found.p) else float(f"{found.p:.6g}")  # the last digits depend on the order
        return Areas(before=round(found.a, 6), after=round(found.b, 6), change=change, p=p)

    def _truth(self) -> Truth | None:
        if np.isnan(self.effects.truth).all():
            return None
        exact, has = self.effects.exact, self.effects.has
        return Truth(
            mad=self.mean(exact.size),
            md_with=self.mean(exact.change, has),
            md_without=self.mean(exact.change, ~has),
            placebo=self.mean(exact.placebo_size),
            effect=self.mean(exact.effect),
        )

    def _strata(self) -> Iterable[Stratum]:
        for by, values in {**self._cells(), **self.subjects.by}.items():
            texts = np.array(values, dtype=object)
            for value in sorted(set(values) - {""}):
                where = texts == value
                mad, md = (self.mean(number, where) for number in (self.effects.size, self.effects.change))
                yield Stratum(by=by, value=value, mad=mad, md=md, effect=self.effect(where))

    def _cells(self) -> dict[str, Sequence[str]]:
        """Name the cell of each image; blank where the label of the task is not known."""
        task = self.subjects.task
        if task is None:
            return {}
        pairs = zip(self.effects.has, task, strict=True)
        cells = ["" if math.isnan(y) else f"shortcut {int(s)}, task {int(y)}" for s, y in pairs]
        return {CELLS: cells}


def _evidence(effects: Effects, subjects: Subjects, rules: Rules, where: Rows) -> Evidence:
    shown = ~np.isnan(effects.effect) & where
    found = weigh(
        effects.effect[shown],
        rules.margin,
        _chosen(subjects.groups, shown),
        alpha=rules.alpha,
        seed=rules.seed,
        least=effects.least[shown],
    )
    return replace(found, controlled=effects.controlled)


def adjusted(weighed: Sequence[Weighed]) -> list[float]:
    """Return the p-values of all questions after Holm's adjustment."""
    return [float(p) for p in holm([each.evidence.p for each in weighed])]


def _chosen(groups: Sequence[str] | None, where: Rows) -> list[str] | None:
    return None if groups is None else [group for group, kept in zip(groups, where, strict=True) if kept]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
