import numpy as np
import pytest

from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.ideal import ideal_observer
from fastdime.data.phantoms.phantom import phantom

# (d', flip, k): AUROC on the design, AUROC without correlation, MAD; from 100 000 simulated draws
KNOWN = {
    (1.9, 0.02, 100): (0.996, 0.720, 0.776),
    (1.9, 0.02, 75): (0.936, 0.878, 0.249),
    (1.9, 0.02, 50): (0.909, 0.909, 0.000),
    (1.9, 0.0, 100): (1.000, 0.705, 1.000),
    (1.9, 0.0, 75): (0.938, 0.875, 0.261),
    (1.7, 0.02, 100): (0.995, 0.698, 0.827),
    (1.5, 0.02, 75): (0.901, 0.804, 0.315),
}


@pytest.mark.parametrize("setting", KNOWN)
def test_reference_line(setting: tuple[float, float, float]) -> None:
    d_prime, flip, k = setting
    observer = ideal_observer(k, Dials(d_prime=d_prime, flip=flip))
    assert (observer.auroc_k, observer.auroc_u, observer.mad) == pytest.approx(KNOWN[setting], abs=0.0025)


def auroc(labels: np.ndarray, scores: np.ndarray) -> float:
    ranks = scores.argsort().argsort() + 1
    positive = labels == 1
    above = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(above / positive.sum() / (~positive).sum())


@pytest.mark.parametrize("k", [90, 30])
def test_formulas_agree_with_simulation_under_label_noise(k: float) -> None:
    dials = Dials(d_prime=1.2, flip=0.05, label_noise=0.15)
    observer, rng, n = ideal_observer(k, dials), np.random.default_rng(0), 200_000
    y = np.arange(n) % 2
    z = rng.standard_normal(n) + 1.2 * (y - 0.5)
    task = np.where(rng.random(n) < 0.15, 1 - y, y)
    shortcut = rng.random(n) < np.where(y, observer.chance[1], observer.chance[0])
    answers = observer.posterior(z, shortcut)
    assert observer.auroc_k == pytest.approx(auroc(task, answers), abs=0.004)
    loose = rng.random(n) < 0.5
    assert observer.auroc_u == pytest.approx(auroc(task, observer.posterior(z, loose)), abs=0.004)
    assert observer.mad == pytest.approx(np.abs(observer.effect(z)).mean(), abs=0.004)
    for low in (0.2, 0.4, 0.6):  # calibrated: of those with an answer p, a share p has the label
        some = (answers > low) & (answers < low + 0.1)
        assert task[some].mean() == pytest.approx(answers[some].mean(), abs=0.015)


def test_no_design_no_effect() -> None:
    observer = ideal_observer(None, Dials(shortcut_rate=0.9))
    assert observer.mad == 0
    assert observer.auroc_k == pytest.approx(observer.auroc_u) == pytest.approx(0.9104, abs=1e-3)


def test_without_a_task_only_the_shortcut_tells() -> None:
    observer = ideal_observer(75, Dials(d_prime=0, flip=0))
    assert observer.auroc_k == pytest.approx(0.75)
    assert observer.auroc_u == pytest.approx(0.5)
    assert observer.mad == pytest.approx(0.5)


def test_latents_of_images_reach_the_best_auroc() -> None:
    drawn = phantom("chest-pacemaker")
    labels, latents = drawn.labels(9, range(4000), 50), drawn.latents(9, range(4000))
    assert auroc(labels.y, latents["z"]) == pytest.approx(0.910, abs=0.015)
    assert np.corrcoef(latents["z"], latents["ctr"])[0, 1] > 0.999
