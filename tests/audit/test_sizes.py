import math

import numpy as np
import pytest
from scipy import optimize, stats

from fastdime.audit.sizes import (
    cliffs_delta,
    effect_size,
    equivalence,
    equivalence_interval,
    minimum_detectable,
)
from fastdime.errors import InputError
from fastdime.metrics.clusters import clusters


def some(n: int = 30, mean: float = 0.0, seed: int = 0) -> np.ndarray:
    return mean + np.random.default_rng(seed).standard_normal(n)


def test_effect_size_is_the_t_of_scipy_by_the_root_of_n() -> None:
    values = some(mean=0.5)
    assert effect_size(values) == pytest.approx(stats.ttest_1samp(values, 0).statistic / math.sqrt(30))
    assert effect_size(np.repeat(values, 3), np.repeat(np.arange(30), 3)) == pytest.approx(
        effect_size(values)
    )
    assert math.isnan(effect_size([0.5, 0.5]))
    assert math.isnan(effect_size([0.5]))


def test_cliffs_delta_follows_from_the_u_of_scipy_stats_mannwhitneyu() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 40), rng.integers(2, 11, 25)  # with ties
    u = stats.mannwhitneyu(b, a).statistic
    assert cliffs_delta(a, b) == pytest.approx(2 * u / (40 * 25) - 1)
    assert (cliffs_delta([1, 2], [3, 4]), cliffs_delta([3, 4], [1, 2])) == (1, -1)
    assert math.isnan(cliffs_delta([], [1.0]))


@pytest.mark.parametrize("mean", [0.0, 0.4, -0.4, 2.0])
def test_equivalence_is_two_t_tests_of_scipy(mean: float) -> None:
    values = some(mean=mean)
    low = stats.ttest_1samp(values, -0.6, alternative="greater").pvalue
    high = stats.ttest_1samp(values, 0.6, alternative="less").pvalue
    assert equivalence(values, 0.6) == pytest.approx(max(low, high))


def test_equivalence_of_groups_of_one_size_is_that_of_their_means() -> None:
    values, groups = some(40), np.repeat(np.arange(10), 4)
    assert equivalence(values, 0.8, groups) == pytest.approx(equivalence(values.reshape(10, 4).mean(1), 0.8))


def test_equivalence_is_rarely_claimed_of_an_effect_at_the_margin_and_often_of_none() -> None:
    wrong = [equivalence(some(20, 0.5, seed), 0.5) <= 0.05 for seed in range(1000)]
    by_interval = [
        equivalence_interval(some(30, 0.5, seed), 0.5, resamples=500, seed=seed)[0] for seed in range(500)
    ]
    right = [equivalence(some(60, 0.0, seed), 0.5) <= 0.05 for seed in range(200)]
    assert np.mean(wrong) == pytest.approx(0.05, abs=0.02)
    assert np.mean(by_interval) <= 0.05 + 0.03  # a bootstrap of 30 values is a little too sure
    assert np.mean(right) > 0.9


def test_the_interval_of_equivalence_has_level_one_minus_two_alpha() -> None:
    values = some(200)
    _, wide = equivalence_interval(values, 1.0, alpha=0.01)
    inside, narrow = equivalence_interval(values, 1.0, alpha=0.05)
    assert inside
    assert narrow.high - narrow.low == pytest.approx(2 * 1.645 * values.std() / math.sqrt(200), rel=0.05)
    assert wide.low < narrow.low < narrow.high < wide.high
    assert not equivalence_interval([0.5], 1.0)[0]  # without an interval nothing is claimed


def test_without_spread_nothing_is_claimed() -> None:
    assert math.isnan(equivalence([0.01] * 20, 0.1))
    assert math.isnan(equivalence([0.01], 0.1))


@pytest.mark.parametrize("n", [5, 10, 34, 200])
@pytest.mark.parametrize("two_sided", [True, False])
def test_detectable_is_where_the_noncentral_t_of_scipy_has_the_power(n: int, two_sided: bool) -> None:
    edge = stats.t.isf(0.025 if two_sided else 0.05, n - 1)
    shift = optimize.brentq(lambda one: stats.nct.sf(edge, n - 1, one) - 0.8, 0.1, 8)
    alternative = "two-sided" if two_sided else "greater"
    found = minimum_detectable(2.0, n, alternative=alternative)
    assert found == pytest.approx(2 * shift, rel=1e-4)


def test_an_effect_that_is_detectable_is_found_with_the_power() -> None:
    effect = minimum_detectable(1 / math.sqrt(15), 15)
    found = [stats.ttest_1samp(some(15, effect, seed), 0).pvalue <= 0.05 for seed in range(1000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.04)


def test_detectable_shrinks_with_images_and_has_an_answer_for_two() -> None:
    found = [minimum_detectable(1 / math.sqrt(n), n) for n in (2, 3, 5, 20, 100, 10_000)]
    assert found == sorted(found, reverse=True)
    assert math.isnan(minimum_detectable(clusters([1.0]).error, 1))
    assert minimum_detectable(1.0, 2, power=0.999) > minimum_detectable(1.0, 2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: equivalence([1.0, 2.0], 0), "margin: expected a number above 0, got 0"),
        (lambda: equivalence([1.0, 2.0], float("nan")), "margin: expected a number above 0, got nan"),
        (lambda: equivalence_interval([1.0], 1.0, alpha=0.5), "alpha: expected a number between 0 and 0.5"),
        (lambda: minimum_detectable(1.0, 9, power=0.01), "power: expected more than alpha = 0.05, got 0.01"),
        (lambda: minimum_detectable(1.0, 9, alternative="up"), "alternative: "),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_one_clear_line(call: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()  # type: ignore[operator]
