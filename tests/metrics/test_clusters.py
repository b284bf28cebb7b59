import math

import numpy as np
import pytest
from scipy import stats

from fastdime.errors import InputError
from fastdime.metrics.clusters import clusters, codes_of


def test_without_groups_the_error_is_that_of_scipy_stats_sem() -> None:
    values = np.random.default_rng(0).exponential(size=30)
    found = clusters(values)
    assert (found.mean, found.error) == pytest.approx((values.mean(), stats.sem(values)))
    assert (found.n, len(found)) == (30, 30)


def test_groups_of_one_size_have_the_error_of_their_means() -> None:
    values = np.random.default_rng(0).standard_normal(40)
    groups = np.repeat(np.arange(10), 4)
    found = clusters(values, groups)
    assert found.error == pytest.approx(stats.sem(values.reshape(10, 4).mean(1)))
    assert (found.n, len(found)) == (40, 10)


def test_the_error_of_unequal_groups_is_that_of_many_audits() -> None:
    means, errors = [], []
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), rng.integers(1, 8, 40))
        found = clusters(rng.standard_normal(40)[groups] + rng.standard_normal(len(groups)), groups)
        means.append(found.mean)
        errors.append(found.error)
    assert np.mean(np.square(errors)) == pytest.approx(np.var(means), rel=0.1)


def test_the_order_of_rows_leaves_no_trace() -> None:
    rng = np.random.default_rng(0)
    values, groups = rng.standard_normal(50), rng.integers(0, 9, 50)
    order = rng.permutation(50)
    one, other = clusters(values, groups), clusters(values[order], groups[order])
    assert one.sums.tolist() == other.sums.tolist()
    assert one.counts.tolist() == other.counts.tolist()


def test_without_spread_the_error_is_zero_and_with_one_group_there_is_none() -> None:
    assert clusters([0.1] * 12).error == 0
    assert clusters([0.1, 0.3, 0.3, 0.1], ["a", "a", "b", "b"]).error == 0
    assert math.isnan(clusters([0.1, 0.2], ["a", "a"]).error)
    assert math.isnan(clusters([]).mean)


def test_bad_input_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="groups: expected a group for every value, got 1 without"):
        codes_of(["a", None])
    with pytest.raises(InputError, match="values and groups: expected the same number of each, got 2 and 1"):
        clusters([1.0, 2.0], ["a"])
    with pytest.raises(InputError, match="values: expected finite numbers, got NaN or infinity 1 times in 2"):
        clusters([1.0, float("nan")])
