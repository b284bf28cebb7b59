from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fastdime.audit.answers import Answers
from fastdime.audit.effects import Effects
from fastdime.audit.schema import Interval, Row
from fastdime.audit.weighing import CELLS, Rules, Subjects, Weighed, adjusted
from fastdime.metrics.statistics import mean_interval

N = 40
HAS = np.arange(N) % 2
NAN = float("nan")


def logit(p: Any) -> np.ndarray:
    chances = np.asarray(p, dtype=float)
    return np.log(chances / (1 - chances))[:, None]


def effects(change: float = 0.2, placebo: float | None = 0.02, **more: Any) -> Effects:
    """A model at 0.5 that moves by about so much, down where the shortcut goes and up where it comes."""
    rng = np.random.default_rng(0)
    moved = change + 0.02 * rng.standard_normal(N)
    kinds = {"original": np.full(N, 0.5), "edit": 0.5 - np.where(HAS, moved, -moved)}
    if placebo is not None:
        kinds["placebo"] = 0.5 + placebo * rng.uniform(0.5, 1.5, N)
    found = {kind: logit(values) for kind, values in {**kinds, **more}.items()}
    return Effects.of(Answers(tuple(map(str, range(N))), ("sick",), found), 0, HAS.tolist())


def row(found: Effects, subjects: Subjects | None = None, rules: Rules | None = None) -> Row:
    weighed = Weighed.of(found, subjects or Subjects(), rules or Rules())
    return weighed.row("drain", "net", "sick", weighed.evidence.p)


def test_a_model_that_leans() -> None:
    found = effects()
    told = row(found)
    assert told.verdict == "relies"
    assert (told.shortcut, told.model, told.output) == ("drain", "net", "sick")
    assert_allclose(told.mad.value, np.abs(found.change).mean(), atol=1e-6)
    assert_allclose(told.md_with.value, found.change[HAS == 1].mean(), atol=1e-6)
    assert_allclose(told.md_without.value, found.change[HAS == 0].mean(), atol=1e-6)
    assert_allclose(told.effect.value, told.mad.value - told.placebo.value, atol=2e-6)
    assert_allclose(told.logit.value, np.abs(found.logit_change).mean(), atol=1e-6)
    assert told.md_with.value > 0 > told.md_without.value
    assert told.logit_with.value > 0 > told.logit_without.value
    assert (told.md_with.n, told.md_without.n, told.mad.n) == (20, 20, 40)
    assert (told.flips.to_one, told.flips.to_zero) == (20, 0)  # a half is no decision for class 1
    assert told.p <= 1e-3
    assert told.detectable < 0.05


def test_intervals_are_those_of_the_means() -> None:
    found = effects()
    assert row(found).mad == Interval.of(mean_interval(np.abs(found.change)))
    other = row(found, rules=Rules(seed=3)).mad
    assert other == Interval.of(mean_interval(np.abs(found.change), seed=3))


def test_a_model_that_does_not() -> None:
    told = row(effects(0.03, 0.03))
    assert told.verdict == "no reliance above m"
    assert told.p_equivalence <= 0.05
    assert told.p > 0.05


def test_a_margin_decides_what_is_of_no_matter() -> None:
    assert row(effects(0.1), rules=Rules(margin=0.2)).verdict == "no reliance above m"
    assert row(effects(0.1), rules=Rules(margin=0.05)).verdict == "relies"


def test_without_a_placebo_reliance_is_not_claimed() -> None:
    told = row(effects(0.2, None))
    assert told.verdict == "cannot tell"
    assert told.reason.startswith("the change by the edit is 0.199 in 40 images")
    assert told.reason.endswith("and no placebo says how much of it any edit would do")
    assert told.effect == told.mad
    assert told.placebo.n == 0
    small = row(effects(0.02, None))  # what is small with all its side effects is small
    assert small.verdict == "no reliance above m"


def test_patients_count_and_not_their_images() -> None:
    found = effects()
    alone = row(found)
    grouped = row(found, Subjects(groups=[f"p{i // 4}" for i in range(N)]))
    assert (alone.effect.clusters, grouped.effect.clusters) == (40, 10)
    assert alone.effect.value == grouped.effect.value
    assert (alone.effect.low, alone.effect.high) != (grouped.effect.low, grouped.effect.high)
    few = row(found, Subjects(groups=[f"p{i // 10}" for i in range(N)]))
    assert few.verdict == "cannot tell"
    assert "from 4 patients" in few.reason


def test_images_that_complied() -> None:
    found = effects()
    half = np.where(np.arange(N) < 20, 1.0, 0.0)
    told = row(found, Subjects(complied=half))
    assert told.complier.n == 20
    assert_allclose(told.complier.value, found.effect[:20].mean(), atol=1e-6)
    assert told.verdict == "relies"
    assert row(found).complier.n == 0


def test_a_generator_that_fails_clears_no_model() -> None:
    rng = np.random.default_rng(1)
    worked = np.arange(N) < 12  # the others are left as they were
    moved = np.where(worked, 0.1, 0.0) + 0.001 * rng.standard_normal(N)
    found = effects(0.2, 0.001, edit=0.5 - moved)
    assert row(found, rules=Rules(margin=0.08)).verdict == "no reliance above m"
    told = row(found, Subjects(complied=worked.astype(float)), Rules(margin=0.08))
    assert told.verdict == "cannot tell"
    assert told.reason.startswith("the oracle sees the shortcut switched in 12 of 40 images only, and over")
    harmless = effects(0.01, 0.001)
    told = row(harmless, Subjects(complied=worked.astype(float)), Rules(margin=0.08))
    assert told.verdict == "no reliance above m"
    told = row(harmless, Subjects(complied=(np.arange(N) < 5).astype(float)), Rules(margin=0.08))
    assert told.reason.endswith("there are 5 images, and at least 10 are needed")


def test_decisions_at_one_half() -> None:
    before, after = np.full(N, 0.6), np.full(N, 0.6)
    after[:7], before[10:12], after[10:12] = 0.4, 0.4, 0.7
    told = row(effects(original=before, edit=after))
    assert (told.flips.to_one, told.flips.to_zero) == (2, 7)
    assert_allclose(told.flips.p, 0.1796875)  # binomial: 2 of 9


def test_areas_of_the_task() -> None:
    task = (np.arange(N) // 2 % 2).astype(float)
    before = np.where(task == 1, 0.8, 0.3) + np.linspace(0, 0.1, N)
    told = row(effects(original=before, edit=np.linspace(0.2, 0.9, N)), Subjects(task=task))
    assert told.auroc is not None
    assert told.auroc.before == 1
    assert told.auroc.after < 0.8
    assert_allclose(told.auroc.change.value, told.auroc.after - told.auroc.before, atol=1e-6)
    assert row(effects()).auroc is None
    assert row(effects(), Subjects(task=np.ones(N))).auroc is None
    some = np.where(np.arange(N) < 10, NAN, task)
    assert row(effects(), Subjects(task=some)).auroc.change.n == 30


def test_strata() -> None:
    found = effects()
    task = np.where(np.arange(N) < 4, NAN, np.arange(N) // 2 % 2)
    site = ["" if i == 5 else "north" if i < 30 else "south" for i in range(N)]
    strata = row(found, Subjects(task=task, by={"site": site})).strata
    named = {(part.by, part.value): part for part in strata}
    cells = [f"shortcut {s}, task {y}" for s in (0, 1) for y in (0, 1)]
    assert list(named) == [*((CELLS, cell) for cell in cells), ("site", "north"), ("site", "south")]
    assert [part.mad.n for part in strata] == [9, 9, 9, 9, 29, 10]
    assert_allclose(named["site", "south"].md.value, found.change[30:].mean(), atol=1e-6)
    rows = (HAS == 1) & (task == 1)
    assert_allclose(named[CELLS, cells[3]].effect.value, found.effect[rows].mean(), atol=1e-6)


def test_two_edits_count_in_the_direction_of_each_other() -> None:
    found = effects()
    same = row(replace(found, reseed=found.after))
    assert same.effect == row(found).effect
    chance = np.random.default_rng(5).choice([-1.0, 1.0], N)  # a model that goes anywhere at random
    wild = row(replace(found, after=0.5 - 0.2 * chance, reseed=0.5 - 0.2 * np.roll(chance, 1)))
    assert wild.mad.value == pytest.approx(0.2)
    assert abs(wild.effect.value) < 0.1
    assert wild.effect.low < 0
    assert wild.verdict != "relies"


def test_controls() -> None:
    null = np.where(np.arange(N) < 10, 0.51, NAN)
    told = row(effects(null=null, reseed=effects().after - 0.03))
    assert (told.null.n, told.reseed.n) == (10, 40)
    assert_allclose([told.null.value, told.reseed.value], [0.01, 0.03], atol=1e-6)


def test_exact_counterfactuals_beside_the_edits() -> None:
    exact = effects(truth=0.5 - np.where(HAS, 0.3, -0.1))
    told = row(replace(exact, placebo=np.full(N, 0.55)))
    assert told.truth is not None
    found = {name: getattr(told.truth, name).value for name in type(told.truth).model_fields}
    wanted = {"mad": 0.2, "md_with": 0.3, "md_without": -0.1, "placebo": 0.05, "effect": 0.15}
    assert found == pytest.approx(wanted, abs=1e-6)
    assert row(effects()).truth is None


def test_constant_predictions_prove_nothing() -> None:
    same = np.full(N, 0.7)
    told = row(replace(effects(), before=same, after=same, placebo=same))
    assert told.verdict == "cannot tell"
    assert "as if the predictions were constant" in told.reason
    assert (told.p, told.size, told.p_equivalence) == (1.0, None, None)
    assert (told.effect.value, told.flips.p) == (0, 1)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_few_images_prove_nothing(n: int) -> None:
    kept = np.arange(N) < n
    found = effects(edit=np.where(kept, effects().after, NAN))
    told = row(found, Subjects(task=HAS.astype(float), complied=kept.astype(float)))
    assert told.verdict == "cannot tell"
    assert told.reason == f"there are {n} images, and at least 10 are needed"
    assert told.effect.n == told.mad.n == n
    assert Row.model_validate_json(told.model_dump_json()) == told


def test_all_questions_of_an_audit_are_adjusted_for() -> None:
    alone = Weighed.of(effects(0.05, 0.04), Subjects(), Rules(margin=0.001))
    assert alone.row("a", "b", "c", alone.evidence.p).verdict == "relies"
    many = [alone, *(replace(alone, evidence=replace(alone.evidence, p=0.9)) for _ in range(200))]
    chances = adjusted(many)
    assert chances[0] == pytest.approx(min(1, 201 * alone.evidence.p))
    told = alone.row("a", "b", "c", chances[0])
    assert (told.p, told.p_adjusted) == (alone.evidence.p, chances[0])
    assert told.verdict == "cannot tell"
    assert adjusted([]) == []


def test_the_order_of_images_does_not_matter() -> None:
    found, order = effects(), np.random.default_rng(2).permutation(N)
    parts = {name: value[order] for name, value in vars(found).items()}
    task = (np.arange(N) // 2 % 2).astype(float)
    groups = [f"p{i // 3}" for i in range(N)]
    one = row(found, Subjects(groups, task, by={"site": groups}))
    other = row(
        replace(found, **parts),
        Subjects([groups[i] for i in order], task[order], by={"site": [groups[i] for i in order]}),
    )
    assert one == other
