from itertools import product

import numpy as np
import pytest
from scipy import stats

from fastdime.audit import evidence
from fastdime.audit.evidence import Alternative, holm, mcnemar, sign_flip, wilcoxon
from fastdime.errors import InputError

AUDITS = 400  # made up, to count false alarms; 5 % of them +- 2.2 %


def shifted(n: int, mean: float = 0.4, seed: int = 0) -> np.ndarray:
    return mean + np.random.default_rng(seed).standard_normal(n)


def patients(count: int, images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """No effect, but images of one patient are alike."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(count), images)
    return rng.standard_normal(count)[groups] + 0.3 * rng.standard_normal(len(groups)), groups


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize("n", [5, 10, 13])
def test_few_signs_are_all_flipped_as_scipy_stats_permutation_test_does(
    n: int, alternative: Alternative
) -> None:
    values = shifted(n)
    theirs = stats.permutation_test(
        (values,),
        lambda x, axis: x.mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
        alternative=alternative,
    )
    assert sign_flip(values, alternative=alternative) == pytest.approx(theirs.pvalue)


def test_many_signs_are_drawn_near_the_exact_value(monkeypatch: pytest.MonkeyPatch) -> None:
    values = shifted(13, 0.6)
    exact = sign_flip(values)
    monkeypatch.setattr(evidence, "EXACT", 4)
    monkeypatch.setattr(evidence, "CHUNK", 1000)  # in parts
    drawn = sign_flip(values, resamples=20_000, seed=1)
    assert 0.05 < exact < 0.6
    assert drawn == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 20_000) ** 0.5)
    assert drawn == sign_flip(values, resamples=20_000, seed=1) != sign_flip(values, resamples=20_000, seed=2)


def test_the_values_of_a_group_flip_together() -> None:
    values, groups = np.array([1.0, 2.0, -0.5, 3.0, 0.25]), ["a", "a", "b", "c", "c"]
    sums = np.array([3.0, -0.5, 3.25])
    reached = [signs @ sums >= sums.sum() for signs in map(np.array, product((-1, 1), repeat=3))]
    assert sign_flip(values, groups, alternative="greater") == np.mean(reached) == 2 / 8


def test_false_alarms_are_as_rare_as_alpha_also_with_patients() -> None:
    alone, grouped, naive = [], [], []
    for seed in range(AUDITS):
        alone.append(sign_flip(shifted(30, 0.0, seed) ** 3, resamples=999, seed=seed))
        values, groups = patients(20, 5, seed)
        grouped.append(sign_flip(values, groups, resamples=999, seed=seed))
        naive.append(sign_flip(values, resamples=999, seed=seed))
    assert np.mean(np.array(alone) <= 0.05) <= 0.05 + 0.022
    assert np.mean(np.array(grouped) <= 0.05) <= 0.05 + 0.022
    assert np.mean(np.array(grouped) <= 0.5) == pytest.approx(0.5, abs=0.08)  # and not because it is timid
    assert np.mean(np.array(naive) <= 0.05) > 0.3  # images that are taken for patients


def test_an_effect_is_found() -> None:
    found = [sign_flip(shifted(40, 0.5, seed), resamples=999) <= 0.05 for seed in range(100)]
    assert np.mean(found) > 0.75  # a t-test finds 87 %


def test_the_order_does_not_matter_and_nothing_but_zeros_is_no_evidence() -> None:
    values = shifted(50)
    assert sign_flip(values) == sign_flip(values[::-1])
    assert sign_flip(np.zeros(20)) == sign_flip([]) == wilcoxon(np.zeros(20)) == wilcoxon([]) == 1
    assert sign_flip([0.1] * 20, alternative="greater") == pytest.approx(1e-4)  # never zero


def test_equal_sums_count_as_equal_whatever_rounding_makes_of_them() -> None:
    assert sign_flip([0.1, 0.2, 0.3, -0.6], alternative="greater") == pytest.approx(9 / 16)


def test_wilcoxon_is_that_of_scipy_on_the_means_of_groups() -> None:
    values, groups = shifted(40), np.repeat(np.arange(10), 4)
    assert wilcoxon(values, groups) == stats.wilcoxon(values.reshape(10, 4).mean(1)).pvalue
    assert wilcoxon(values, alternative="greater") == stats.wilcoxon(values, alternative="greater").pvalue


def test_mcnemar_counts_the_flips_and_is_the_exact_binomial_test() -> None:
    before = np.array([1] * 12 + [0] * 20)
    after = np.array([0] * 9 + [1] * 3 + [1] * 2 + [0] * 18)
    found = mcnemar(before, after)
    assert (found.to_one, found.to_zero) == (2, 9)
    assert found.p == pytest.approx(stats.binomtest(2, 11).pvalue) == pytest.approx(0.0654, abs=1e-4)
    assert mcnemar(before, after, np.arange(32)).p == pytest.approx(found.p, abs=0.02)  # each its own patient
    assert mcnemar(before, before).p == 1


def test_decisions_of_one_patient_are_no_independent_flips() -> None:
    before, after, groups = np.ones(12), np.zeros(12), np.repeat([0, 1, 2], 4)
    assert mcnemar(before, after).p < 0.001
    assert mcnemar(before, after, groups).p == 0.25


def test_holm_is_the_step_down_rule() -> None:
    p = np.random.default_rng(0).uniform(0, 0.2, 9)
    order = np.argsort(p)
    by_hand = np.empty(9)
    for rank, place in enumerate(order):  # as statsmodels.stats.multitest.multipletests(method="holm") does
        by_hand[place] = min(1.0, max((9 - earlier) * p[order[earlier]] for earlier in range(rank + 1)))
    np.testing.assert_allclose(holm(p), by_hand)
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([]).shape == (0,)
    assert holm([0.7, 0.8]).tolist() == [1, 1]


def test_holm_keeps_one_false_claim_among_many_rare() -> None:
    p = np.random.default_rng(0).uniform(size=(2000, 8))
    assert (p.min(1) <= 0.05).mean() > 0.3
    assert np.mean([holm(row).min() <= 0.05 for row in p]) <= 0.05 + 0.015


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: sign_flip([1.0], alternative="les"), "alternative: expected one of"),  # type: ignore[arg-type]
        (lambda: sign_flip([1.0], resamples=0), "resamples: expected"),
        (lambda: mcnemar([0.3], [1]), "before: expected decisions of 0 or 1, got 0.3"),
        (lambda: mcnemar([0], [1, 0]), "before and after: expected the same number"),
        (lambda: holm([0.5, 1.5]), "p-values: expected numbers from 0 to 1, got 1.5"),
    ],
)
def test_bad_input_is_one_clear_line(call: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()  # type: ignore[operator]
