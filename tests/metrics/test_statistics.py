import math
from dataclasses import astuple
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from fastdime.errors import InputError
from fastdime.metrics import statistics
from fastdime.metrics.statistics import Estimate, Means, correlation, mean_interval, paired_difference


def skewed(n: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=n)


def clustered(patients: int = 30, images: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images of a patient are alike, and patients have different numbers of them."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(patients), rng.integers(1, 2 * images, patients))
    return rng.exponential(size=patients)[groups] + 0.2 * rng.standard_normal(len(groups)), groups


def ratio(sums: np.ndarray, counts: np.ndarray, axis: int) -> np.ndarray:
    return sums.sum(axis) / counts.sum(axis)


def sums_and_counts(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.bincount(groups, values), np.bincount(groups).astype(float)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_the_formula_is_that_of_scipy_stats_bootstrap(level: float) -> None:
    values, groups = clustered()
    sums, counts = sums_and_counts(values, groups)
    drawn = statistics._resampled(sums, counts, 2000, np.random.default_rng(0))
    own = statistics._bca(drawn, values.mean(), statistics._left_out(sums, counts), level)
    before = stats._resampling.BootstrapResult(None, drawn, drawn.std(ddof=1))
    theirs = stats.bootstrap(
        (sums, counts),
        ratio,
        paired=True,
        method="BCa",
        confidence_level=level,
        n_resamples=0,
        bootstrap_result=before,
    )
    np.testing.assert_allclose(own, theirs.confidence_interval, rtol=1e-10)
    percentile = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    assert np.abs(own - percentile).max() > 0.03 * (own[1] - own[0])  # the correction is no trifle here


@pytest.mark.parametrize("alone", [True, False])
def test_the_interval_is_that_of_scipy_stats_bootstrap_within_the_error_of_drawing(alone: bool) -> None:
    values, groups = (skewed(), np.arange(40)) if alone else clustered()
    own = mean_interval(values, None if alone else groups, resamples=20_000, seed=1)
    theirs = stats.bootstrap(
        sums_and_counts(values, groups),
        ratio,
        paired=True,
        method="BCa",
        n_resamples=20_000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert own.value == pytest.approx(values.mean())
    assert [own.low, own.high] == pytest.approx(list(theirs), abs=0.03 * (theirs.high - theirs.low))
    assert (own.n, own.clusters) == (len(values), len(set(groups)))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    estimates = [mean_interval(skewed(seed=seed), seed=seed) for seed in range(400)]
    held = np.mean([estimate.low <= 1 <= estimate.high for estimate in estimates])
    assert 0.91 <= held <= 0.98


def test_values_of_one_patient_count_as_one_draw() -> None:
    values, groups = clustered()
    naive, honest = mean_interval(values), mean_interval(values, groups)
    assert honest.value == naive.value
    assert honest.high - honest.low > 1.5 * (naive.high - naive.low)
    assert honest.clusters == 30 < honest.n == naive.clusters


def test_groups_of_one_are_no_groups() -> None:
    assert mean_interval(skewed(), np.arange(40)) == mean_interval(skewed())


def test_the_order_of_values_and_the_names_of_groups_do_not_matter() -> None:
    values, groups = clustered()
    order = np.random.default_rng(3).permutation(len(values))
    names = [f"patient {99 - group}" for group in groups[order]]
    assert mean_interval(values[order], names) == mean_interval(values, groups)
    assert mean_interval(values[order]) == mean_interval(values)


def test_a_seed_gives_one_interval_and_another_seed_another() -> None:
    first, again, other = (mean_interval(skewed(), seed=seed) for seed in (0, 0, 1))
    assert first == again != other


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values, groups = clustered()
    whole = mean_interval(values, groups)
    monkeypatch.setattr(statistics, "CHUNK", 100)
    assert mean_interval(values, groups) == whole


def test_a_higher_level_is_a_wider_interval() -> None:
    widths = [(e.high - e.low) for e in (mean_interval(skewed(), level=x) for x in (0.5, 0.9, 0.999999))]
    assert widths == sorted(widths)
    assert widths[0] < widths[1] < widths[2]


def test_too_few_values_give_nan_with_the_reason() -> None:
    cases = {
        (): (0, 0, "no values"),
        (2.5,): (1, 1, "one value has no interval"),
    }
    for values, (n, clusters, reason) in cases.items():
        estimate = mean_interval(values)
        assert (estimate.n, estimate.clusters, estimate.reason) == (n, clusters, reason)
        assert math.isnan(estimate.low)
        assert math.isnan(estimate.high)
        assert math.isnan(estimate.value) == (n == 0)
    one_patient = mean_interval([1.0, 2.0], ["a", "a"])
    assert (one_patient.value, one_patient.reason) == (1.5, "one group has no interval")
    assert math.isnan(one_patient.low)
    assert mean_interval([1.0, 2.0], ["a", "b"]).reason == ""


def test_equal_values_have_an_interval_without_width() -> None:
    assert mean_interval([0.1] * 7) == Estimate(0.1, 0.1, 0.1, 7, 7)
    same = mean_interval([0.1] * 7, list("aabbccc"))
    assert same == Estimate(0.1, 0.1, 0.1, 7, 3)


def test_groups_of_equal_mean_have_an_interval_of_hardly_any_width() -> None:
    estimate = mean_interval([0.0, 1.0, 0.0, 1.0], list("aabb"))
    assert astuple(estimate)[:3] == pytest.approx((0.5, 0.5, 0.5))


def test_zeros_and_ones_stay_inside() -> None:
    estimate = mean_interval([1.0] * 39 + [0.0])
    assert 0 < estimate.low < estimate.value < estimate.high <= 1


@pytest.mark.parametrize(
    ("values", "groups", "sentence"),
    [
        ([1.0, math.nan], None, "values: expected finite numbers, got NaN or infinity 1 times in 2"),
        ([1.0, math.inf], None, "drop these images and say why"),
        ([[1.0]], None, r"shape \(b,\), got \(1, 1\)"),
        (["a"], None, "values: expected numbers, got list"),
        ([1.0, 2.0], ["a"], "values and groups: expected the same number of each, got 2 and 1"),
        ([1.0, 2.0], ["a", None], "groups: expected a group for every value, got 1 without"),
        ([1.0, 2.0], [0.0, math.nan], "got 1 without"),
    ],
)
def test_bad_values_are_one_sentence(values: list[float], groups: list[str] | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        mean_interval(values, groups)
    assert "\n" not in str(caught.value)


def test_bad_settings_are_one_sentence() -> None:
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="level: expected a number between 0 and 1"):
            mean_interval([1.0, 2.0], level=level)
    with pytest.raises(InputError, match="resamples: expected a whole number >= 1"):
        mean_interval([1.0, 2.0], resamples=0)
    with pytest.raises(InputError, match="seed: expected"):
        mean_interval([1.0, 2.0], seed=-1)


def test_tensors_are_values_too() -> None:
    values = torch.tensor([0.25, 0.5, 1.0], requires_grad=True)
    assert mean_interval(values) == mean_interval([0.25, 0.5, 1.0])


def test_a_paired_difference_is_the_mean_of_the_differences() -> None:
    a, b = skewed(seed=1), skewed(seed=1) + 0.1 * skewed(seed=2)
    groups = np.arange(40) // 2
    assert paired_difference(a, b, groups, seed=3) == mean_interval(b - a, groups, seed=3)
    assert paired_difference(a, b).value == pytest.approx((b - a).mean())
    with pytest.raises(InputError, match="a and b: expected the same number of each, got 2 and 1"):
        paired_difference([1.0, 2.0], [1.0])


def test_correlation_is_that_of_scipy_stats_pearsonr() -> None:
    a, b = skewed(seed=1), skewed(seed=1) - 0.7 * skewed(seed=2) + 1e6
    assert correlation(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-9)
    assert correlation([0.1, 0.2, 0.3], [0.3, 0.2, 0.1]) == pytest.approx(-1)
    assert correlation([0.1, 0.2, 0.4], [0.1, 0.2, 0.4]) <= 1


def test_a_constant_has_no_correlation() -> None:
    for a, b in (([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0.1, 0.1, 0.1]), ([1], [2]), ([], [])):
        assert math.isnan(correlation(a, b))
    with pytest.raises(InputError, match="finite"):
        correlation([1, math.nan], [1, 2])


def test_parts_merged_in_any_order_equal_one_pass() -> None:
    values, ids = skewed(12), [f"{row:02d}" for row in range(12)]
    whole = Means()
    whole.update({"l1": values, "ssim": -values}, ids)
    parts = []
    for first, last in pairwise((0, 3, 3, 10, 12)):
        parts.append(Means())
        part = torch.from_numpy(values[first:last])
        parts[-1].update({"ssim": -part, "l1": part}, ids[first:last])
    merged = Means()
    for part in (parts[3], parts[0], Means(), parts[2], parts[1]):
        merged.merge(part)
    assert merged.ids == whole.ids == ids
    assert set(merged.compute()) == {"l1", "ssim"}
    for name, numbers in whole.compute().items():
        np.testing.assert_array_equal(merged.compute()[name], numbers)
    np.testing.assert_array_equal(merged.compute()["l1"], values)


def test_means_keep_nan_and_start_empty() -> None:
    means = Means()
    assert (means.ids, means.compute()) == ([], {})
    means.update({"l1": [math.nan, 0.5]}, ["b", "a"])
    np.testing.assert_array_equal(means.compute()["l1"], [0.5, math.nan])


def test_means_refuse_what_does_not_fit_and_stay_as_they_were() -> None:
    means = Means()
    with pytest.raises(InputError, match="'a' again"):
        means.update({"other": [1.0, 2.0]}, ["a", "a"])
    means.update({"l1": [1.0]}, ["a"])
    with pytest.raises(InputError, match="ids: expected every image once, got 'a' again"):
        means.update({"l1": [1.0, 2.0]}, ["b", "a"])
    with pytest.raises(InputError, match="metrics of a batch: expected l1, got l2"):
        means.update({"l2": [1.0]}, ["b"])
    with pytest.raises(InputError, match=r"l1: expected one number for each of 2 images, got shape \(1,\)"):
        means.update({"l1": [1.0]}, ["b", "c"])
    with pytest.raises(InputError, match="'a' again"):
        means.merge(means)
    assert means.ids == ["a"]
