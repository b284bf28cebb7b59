import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from fastdime.audit import trend as module
from fastdime.audit.evidence import Alternative
from fastdime.audit.trend import slope, trend
from fastdime.errors import InputError

KS = np.repeat([50.0, 75.0, 100.0], 3)


def networks(step: float, seed: int) -> np.ndarray:
    """The effect in three networks for each k."""
    return step * np.repeat([0, 1, 2], 3) + np.random.default_rng(seed).standard_normal(9)


def by_hand(doses: np.ndarray, values: np.ndarray) -> float:
    pairs = [(a, b) for a in range(len(doses)) for b in range(len(doses)) if doses[a] < doses[b]]
    return sum((values[a] < values[b]) + 0.5 * (values[a] == values[b]) for a, b in pairs)


def test_the_statistic_is_the_sum_of_the_u_of_scipy_stats_mannwhitneyu() -> None:
    values = np.random.default_rng(0).integers(0, 6, 9).astype(float)  # with ties
    low, middle, high = values[:3], values[3:6], values[6:]
    us = [stats.mannwhitneyu(b, a).statistic for a, b in ((low, middle), (low, high), (middle, high))]
    found = trend(KS, values)
    assert found.statistic == sum(us) == by_hand(KS, values)
    assert found.pairs == 27


@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
def test_few_values_are_put_into_all_orders(alternative: Alternative) -> None:
    doses, values = np.array([50, 50, 75, 75, 100, 100.0]), np.array([0.1, 0.3, 0.2, 0.5, 0.5, 0.4])
    found = trend(doses, values, alternative=alternative)
    scores = np.array([by_hand(doses, values[list(order)]) for order in permutations(range(6))])
    middle = found.pairs / 2
    away = np.abs(scores - middle) >= abs(found.statistic - middle)
    assert found.p == pytest.approx(
        np.mean(away if alternative == "two-sided" else scores >= found.statistic)
    )


def test_drawn_orders_come_near_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    doses, values = [50, 50, 75, 75, 100, 100], [0.1, 0.3, 0.2, 0.5, 0.45, 0.4]
    exact = trend(doses, values).p
    monkeypatch.setattr(module, "EXACT", 3)
    assert trend(doses, values, seed=1).p == pytest.approx(exact, abs=0.01)
    assert trend(doses, values, seed=1) == trend(doses, values, seed=1)


def test_many_values_have_the_p_of_scipy_stats_kendalltau_and_drawing_agrees() -> None:
    rng = np.random.default_rng(0)
    doses = np.repeat([50.0, 75.0, 100.0], 20)
    values = rng.standard_normal(60).round(1) + doses / 150
    drawn = trend(doses, values)
    bell = stats.kendalltau(doses, values, method="asymptotic", alternative="greater").pvalue
    assert 0.001 < bell < 0.5
    assert drawn.p == pytest.approx(bell, abs=0.02)
    more, higher = np.append(doses, [50.0, 100.0]), np.append(values, [0.5, 0.6])
    found = trend(more, higher)
    assert found.p == stats.kendalltau(more, higher, method="asymptotic", alternative="greater").pvalue
    assert found.statistic == by_hand(more, higher)


def test_false_alarms_are_rare_and_a_trend_is_found() -> None:
    none = [trend(KS, networks(0.0, seed), resamples=499, seed=seed).p <= 0.05 for seed in range(400)]
    some = [trend(KS, networks(1.5, seed), resamples=499, seed=seed).p <= 0.05 for seed in range(100)]
    theirs = [stats.linregress(KS, networks(1.5, seed), alternative="greater").pvalue for seed in range(100)]
    assert np.mean(none) <= 0.05 + 0.022
    assert np.mean(some) > np.mean(np.array(theirs) <= 0.05) - 0.1  # ranks lose a little


def test_order_does_not_matter_and_equal_values_are_no_trend() -> None:
    values, turned = networks(0.5, 0), np.random.default_rng(0).permutation(9)
    assert trend(KS, values) == trend(KS[turned], values[turned])
    assert trend(KS, np.full(9, 0.2)).p == 1
    assert trend(KS, -KS).p > 0.99  # a fall is no rise


def test_slope_is_that_of_scipy_stats_theilslopes() -> None:
    values = networks(0.5, 0)
    theirs = stats.theilslopes(values, KS, alpha=0.9)
    found = slope(KS, values, level=0.9)
    assert (found.value, found.low, found.high, found.n) == (*theirs[:1], *theirs[2:], 9)
    assert found.low < found.value < found.high
    assert math.isnan(slope([50, 100], [0.0, 1.0]).low)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: trend([50, 50], [1, 2]), "doses: expected two or more different ones, got 1; add another k"),
        (lambda: slope([50, 50], [1, 2]), "doses: expected two or more"),
        (lambda: slope([50, 75], [1, 2], level=1), "level: "),
        (lambda: trend([50, 75], [1]), "doses and values: expected the same number"),
        (lambda: trend([50, 75], [1, 2], alternative="down"), "alternative: "),  # type: ignore[arg-type]
        (lambda: trend([50, 75], [1, 2], resamples=0), "resamples: "),
    ],
)
def test_bad_input_is_one_clear_line(call: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()  # type: ignore[operator]
