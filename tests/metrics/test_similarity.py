import numpy as np
import pytest
import torch

from fastdime.errors import InputError
from fastdime.metrics.similarity import cosine, euclidean
from support.recordings import Recording


def test_cosines_are_the_recorded_ones() -> None:
    recording = Recording("metrics")
    found = cosine(recording.array("fva/feat_original"), recording.array("fva/feat_counterfactual"))
    assert found.mean() == pytest.approx(recording.number("fva/mean_cosine"), abs=1e-4)
    assert (found > 0.5).mean() == recording.number("fva/value")
    assert not recording.unseen("fva/")


def test_cosine_is_that_of_torch() -> None:
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.normal(size=(7, 5))) for _ in range(2))
    np.testing.assert_allclose(cosine(a, b), torch.cosine_similarity(a, b).numpy())
    np.testing.assert_allclose(euclidean(a, b), torch.linalg.vector_norm(a - b, dim=1).numpy())


def test_what_has_no_direction_has_no_cosine() -> None:
    a = np.array([[0.0, 0.0], [np.nan, 1.0], [2.0, 0.0]])
    b = np.array([[1.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal(cosine(a, b), [np.nan, np.nan, 1])
    np.testing.assert_array_equal(cosine(b, a), [np.nan, np.nan, 1])
    np.testing.assert_array_equal(euclidean(a, b), [1, np.nan, 1])


def test_no_rows_have_no_cosines() -> None:
    assert cosine(np.empty((0, 3)), np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    ("fake", "sentence"),
    [
        (np.ones((3, 2)), "fake features: expected 2 rows"),
        (np.ones((2, 3)), "fake features: expected 2 columns, got 3"),
        (np.array([[1.0, np.inf], [1, 1]]), "fake features: expected finite numbers or NaN, got infinity"),
        (np.ones((2, 2), dtype=int), "fake features: expected floats"),
    ],
)
def test_bad_features_are_one_clear_line(fake: np.ndarray, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        cosine(np.ones((2, 2)), fake)
