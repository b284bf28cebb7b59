import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fastdime.audit.areas import auroc_change
from fastdime.errors import InputError


def scores(n: int = 60, seed: int = 0, fall: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, and two correlated scores with ties; the second is worse by a fall."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 2).astype(float)
    shared = rng.standard_normal(n)
    a = labels + shared + 0.5 * rng.standard_normal(n)
    b = (1 - fall) * labels + shared + 0.5 * rng.standard_normal(n)
    return labels, a.round(1), b.round(1)


def delong(labels: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The standard error of the difference, from the matrix of all pairs as in the paper of 1988."""
    kernels = []
    for score in (a, b):
        positive, negative = score[labels == 1][:, None], score[labels == 0][None]
        kernels.append((positive > negative) + 0.5 * (positive == negative))
    rows, columns = (np.stack([kernel.mean(axis) for kernel in kernels]) for axis in (1, 0))
    spread = np.cov(rows) / rows.shape[1] + np.cov(columns) / columns.shape[1]
    return math.sqrt(spread[0, 0] + spread[1, 1] - 2 * spread[0, 1])


def test_areas_are_those_of_sklearn_and_the_error_is_delongs() -> None:
    labels, a, b = scores(fall=0.5)
    found = auroc_change(labels, a, b)
    assert (found.a, found.b) == pytest.approx((roc_auc_score(labels, a), roc_auc_score(labels, b)))
    half = (found.difference.high - found.difference.low) / 2
    assert half == pytest.approx(1.959964 * delong(labels, a, b), rel=1e-6)
    assert found.difference.value == pytest.approx(found.b - found.a)
    assert (found.difference.n, found.difference.clusters) == (60, 60)


def test_false_alarms_are_rare_and_a_fall_is_found() -> None:
    none = [auroc_change(*scores(seed=seed)).p <= 0.05 for seed in range(600)]
    some = [auroc_change(*scores(200, seed, fall=0.8)).p <= 0.05 for seed in range(100)]
    assert np.mean(none) <= 0.05 + 0.02
    assert np.mean(some) > 0.9


def test_images_of_one_patient_are_no_independent_images() -> None:
    labels, a, b = scores(60, fall=0.5)
    again = [np.repeat(column, 4) for column in (labels, a, b)]
    once, copied = auroc_change(labels, a, b), auroc_change(*again, np.repeat(np.arange(60), 4))
    assert copied.difference.low == pytest.approx(once.difference.low)
    assert copied.p == pytest.approx(once.p)
    assert copied.difference.clusters == 60
    assert auroc_change(*again).p < once.p / 2


def test_a_patient_with_both_labels_counts_once() -> None:
    """One image of each label a patient, alike but for the label: the error is the spread of many audits."""
    values, errors, held = [], [], []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        groups, labels = np.repeat(np.arange(50), 2), np.tile([0.0, 1.0], 50)
        mood = rng.standard_normal(50)[groups]
        a = labels + 0.2 * rng.standard_normal(100) + rng.standard_normal(50)[groups]
        b = labels + 0.2 * rng.standard_normal(100) + mood
        found = auroc_change(labels, a, b, groups).difference
        values.append(found.value)
        errors.append((found.high - found.low) / (2 * 1.959964))
        held.append(found.low <= 0 <= found.high)
    assert np.mean(np.square(errors)) == pytest.approx(np.var(values), rel=0.2)
    assert 0.92 <= np.mean(held) <= 0.98


def test_equal_scores_do_not_differ_and_one_image_has_no_interval() -> None:
    labels, a, _ = scores()
    same = auroc_change(labels, a, a)
    assert (same.difference.value, same.p) == (0, 1)
    lone = auroc_change([0, 0, 1], [0.1, 0.2, 0.3], [0.1, 0.2, 0.15])
    assert lone.difference.value == -0.5
    assert math.isnan(lone.difference.low)
    assert math.isnan(lone.p)


@pytest.mark.parametrize(
    ("labels", "b", "sentence"),
    [
        ([0, 0, 0], [1, 2, 3], "labels: expected images with 0 and with 1, got 0; AUROC needs both"),
        ([0, 1, 2], [1, 2, 3], "labels: expected images with 0 and with 1, got 0, 1, 2"),
        ([0, 1, 1], [1, 2], "labels and b: expected the same number of each, got 3 and 2"),
    ],
)
def test_bad_input_is_one_clear_line(labels: list[int], b: list[int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        auroc_change(labels, [0.1, 0.2, 0.3], b)
