import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from fastdime.errors import InputError
from fastdime.metrics import validity


def test_a_flip_is_more_than_one_half_of_the_probability() -> None:
    assert validity.flipped(torch.tensor([0.0, 0.5, 0.51, 1.0])).tolist() == [0, 0, 1, 1]


def test_with_many_classes_a_flip_is_the_target_class() -> None:
    p = torch.tensor([[0.3, 0.4, 0.3], [0.6, 0.3, 0.1]])
    assert validity.flipped_to(p.argmax(1), torch.tensor([1, 1])).tolist() == [1, 0]
    assert validity.flipped(p[:, 1]).tolist() == [0, 0]


def test_bounded_kl_is_what_the_target_lacks() -> None:
    assert validity.bounded_kl([0.0, 0.25, 1.0]).tolist() == [1, 0.75, 0]


def test_the_change_is_positive_where_the_counterfactual_scores_lower() -> None:
    before, after = [0.9, 0.2, 0.5], [0.1, 0.6, 0.5]
    np.testing.assert_allclose(validity.confidence_change(before, after), [0.8, -0.4, 0])
    np.testing.assert_allclose(validity.absolute_confidence_change(before, after), [0.8, 0.4, 0])


def test_auroc_is_that_of_scikit_learn_also_with_ties() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    scores = np.round(rng.random(200) + 0.3 * labels, 1)
    assert validity.auroc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))
    assert validity.auroc(labels == 1, torch.from_numpy(scores)) == validity.auroc(labels, scores)


def test_auroc_of_one_class_is_nan() -> None:
    for labels in ([1, 1], [0, 0], [1], []):
        assert math.isnan(validity.auroc(labels, [0.5] * len(labels)))


def test_no_images_give_no_numbers() -> None:
    assert validity.flipped([]).shape == validity.confidence_change([], []).shape == (0,)


def test_bad_input_is_one_sentence() -> None:
    cases = {
        "p_after: expected probabilities in [0, 1], got [-2, 3]": lambda: validity.flipped([-2.0, 3.0]),
        "p_after: expected finite numbers": lambda: validity.bounded_kl([math.nan]),
        "p_before and p_after: expected the same": lambda: validity.confidence_change([0.1], [0.1, 0.2]),
        "predicted and target: expected the same": lambda: validity.flipped_to([1], [1, 0]),
        "labels: expected 1 or 0, got 2.0": lambda: validity.auroc([0, 1, 2], [0.1, 0.2, 0.3]),
        "labels: expected finite numbers": lambda: validity.auroc([0, math.nan], [0.1, 0.2]),
        "labels and scores: expected the same": lambda: validity.auroc([0, 1], [0.1]),
        "scores: expected finite numbers": lambda: validity.auroc([0, 1], [0.1, math.inf]),
    }
    for sentence, wrong in cases.items():
        with pytest.raises(InputError) as caught:
            wrong()
        assert str(caught.value).startswith(sentence)
        assert "\n" not in str(caught.value)
