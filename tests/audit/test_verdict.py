from dataclasses import replace

import numpy as np
import pytest

from fastdime.audit.evidence import holm
from fastdime.audit.verdict import Evidence, verdict, weigh
from fastdime.errors import InputError
from fastdime.metrics.statistics import Estimate

MARGIN = 0.05


def effects(mean: float, n: int = 60, seed: int = 0) -> np.ndarray:
    return mean + 0.1 * np.random.default_rng(seed).standard_normal(n)


def evidence(low: float, high: float, p: float = 0.01, p_equivalence: float = 0.01) -> Evidence:
    return Evidence(Estimate((low + high) / 2, low, high, 60, 60), MARGIN, p, p_equivalence, 0.03)


def kinds(mean: float, n: int, audits: int) -> list[str]:
    return [verdict(weigh(effects(mean, n, seed), MARGIN, seed=seed)).kind for seed in range(audits)]


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (evidence(0.1, 0.3), "relies", "lies above zero (p = 0.01)"),
        (evidence(0.01, 0.3), "relies", "lies above zero"),
        (evidence(-0.02, 0.04), "no reliance above m", "lies below 0.05"),
        (evidence(0.01, 0.04), "no reliance above m", "lies below 0.05"),
        (evidence(-0.02, 0.2), "cannot tell", "holds both zero and effects beyond 0.05"),
        (evidence(-0.2, 0.02), "no reliance above m", "lies below 0.05"),
        (evidence(-0.3, -0.1), "no reliance above m", "lies below 0.05: the placebo moves the model more"),
        (evidence(0.1, 0.3, p=0.2), "cannot tell", "but p = 0.2 is not below 0.05"),
        (evidence(-0.02, 0.04, p_equivalence=0.2), "cannot tell", "p = 0.2 of the t-tests is too high"),
        (evidence(-0.02, 0.05), "cannot tell", "holds both zero"),
    ],
)
def test_the_rules_in_turn(found: Evidence, kind: str, words: str) -> None:
    answer = verdict(found)
    assert answer.kind == kind
    assert words in answer.reason
    assert "\n" not in answer.reason


def test_the_reason_says_what_an_audit_like_this_could_see() -> None:
    found = weigh(effects(0.03, 20), 0.02)  # the interval is wider than the margin
    answer, seen = verdict(found), found.detectable
    assert answer.kind == "cannot tell"
    assert f"the smallest effect that 80 % of such audits would find is {seen:.3g}" in answer.reason
    assert "in 20 images, and its 90 % interval" in answer.reason


def test_reliance_is_claimed_rarely_where_there_is_none_and_often_where_there_is() -> None:
    none, strong = kinds(0.0, 20, 400), kinds(0.1, 40, 100)
    assert np.mean([kind == "relies" for kind in none]) <= 0.05 + 0.022
    assert np.mean([kind == "relies" for kind in strong]) > 0.95


def test_no_reliance_is_claimed_rarely_of_an_effect_at_the_margin_and_often_of_none() -> None:
    at_margin, none = kinds(MARGIN, 20, 400), kinds(0.0, 100, 100)
    assert np.mean([kind == "no reliance above m" for kind in at_margin]) <= 0.05 + 0.022
    assert np.mean([kind == "no reliance above m" for kind in none]) > 0.95


def test_patients_who_are_alike_do_not_make_a_claim() -> None:
    claimed, margin = {"patients": 0, "images": 0}, 0.005  # so small that "no reliance" is out of reach
    for seed in range(200):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(12), 10)
        values = 0.1 * rng.standard_normal(12)[groups] + 0.02 * rng.standard_normal(120)
        claimed["patients"] += verdict(weigh(values, margin, groups)).kind == "relies"
        claimed["images"] += verdict(weigh(values, margin)).kind == "relies"
    assert claimed["patients"] <= (0.05 + 0.03) * 200
    assert claimed["images"] > 0.2 * 200


@pytest.mark.parametrize(
    ("values", "groups", "reason"),
    [
        ([0.2, 0.3, 0.25], None, "there are 3 images, and at least 10 are needed"),
        ([], None, "there are 0 images, and at least 10 are needed"),
        (effects(0.5, 40), np.arange(40) % 4, "from 4 patients, and at least 5 are needed"),
        ([0.0] * 40, None, "the effect is 0 in every image, as if the predictions were constant"),
    ],
)
def test_what_cannot_be_concluded_is_said(
    values: list[float], groups: np.ndarray | None, reason: str
) -> None:
    answer = verdict(weigh(values, MARGIN, groups))
    assert answer.kind == "cannot tell"
    assert reason in answer.reason


def test_an_adjusted_p_replaces_that_of_one_question() -> None:
    found = weigh(effects(0.025, 60, 3), 0.02)
    others = [0.5, 0.6, 0.7]
    adjusted = holm([found.p, *others])[0]
    assert found.p <= 0.05 < adjusted
    assert verdict(found).kind == "relies"
    assert verdict(found, adjusted).kind == "cannot tell"
    assert verdict(replace(found, p=float(adjusted))) == verdict(found, adjusted)


def test_the_low_end_is_of_the_part_that_is_sure() -> None:
    values = effects(0.1)
    plain, careful = weigh(values, MARGIN), weigh(values, MARGIN, least=values - 0.12)
    assert careful.estimate.value == plain.estimate.value
    assert careful.estimate.high == plain.estimate.high
    assert careful.estimate.low == pytest.approx(plain.estimate.low - 0.12, abs=1e-9)
    assert (verdict(plain).kind, verdict(careful).kind) == ("relies", "cannot tell")
    assert careful.p > 0.5
    with pytest.raises(InputError, match="effects and least"):
        weigh(values, MARGIN, least=values[1:])


def test_without_a_placebo_reliance_is_not_claimed() -> None:
    answer = verdict(replace(evidence(0.1, 0.3), controlled=False))
    assert answer.kind == "cannot tell"
    assert answer.reason.startswith("the change by the edit is 0.2")
    assert verdict(replace(evidence(0.01, 0.03), controlled=False)).kind == "no reliance above m"


def test_the_same_effects_have_the_same_verdict_in_any_order() -> None:
    values = effects(0.03)
    assert weigh(values, MARGIN) == weigh(values[::-1], MARGIN)


def test_bad_input_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="margin: expected a number above 0, got 0"):
        weigh(effects(0.1), 0)
    with pytest.raises(InputError, match=r"alpha: expected a number between 0 and 0\.5, got 0\.7"):
        weigh(effects(0.1), MARGIN, alpha=0.7)
    with pytest.raises(InputError, match="effects: expected finite numbers"):
        weigh([float("nan")] * 20, MARGIN)
    with pytest.raises(InputError, match="p: expected a number from 0 to 1, got 2"):
        verdict(evidence(0.1, 0.2), 2)


def test_the_same_effect_everywhere_is_an_effect() -> None:
    """Answers that flip from 0 to 1 in every image have no spread, and are not constant."""
    assert verdict(weigh([1.0] * 12, MARGIN)).kind == "relies"
    assert verdict(weigh([0.01] * 12, MARGIN)).kind == "no reliance above m"
    assert verdict(weigh([-0.2] * 12, MARGIN)).kind == "no reliance above m"
