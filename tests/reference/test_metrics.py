"""Numbers of the published metrics: metrics.npz, and the metric arrays of end_to_end.npz.

Distances of features and of attributes in metrics.npz have tests of their own.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from fastdime.metrics.closeness import l1
from fastdime.metrics.cout import cout, difference_map
from fastdime.metrics.statistics import mean_interval
from fastdime.metrics.validity import (
    absolute_confidence_change,
    auroc,
    bounded_kl,
    confidence_change,
    flipped,
    flipped_to,
)
from fastdime.pixels import from_integers
from fastdime.scores import predicted_class, probabilities
from support.recordings import Recording, TinyClassifier, close

METRICS = Recording("metrics")
END = Recording("end_to_end")
ELSEWHERE = {"fid", "fva", "oracle", "cd", "mnac"}
TOLERANCE = 1e-4


def near(value: float) -> object:
    return pytest.approx(value, abs=TOLERANCE)


def test_every_group_of_the_file_is_known() -> None:
    assert set(METRICS.groups()) == ELSEWHERE | {"cout", "shortcut"}
    assert not METRICS.left_over("")


def test_cout() -> None:
    x, x_cf = (2 * METRICS.tensor(f"cout/{name}") - 1 for name in ("original", "counterfactual"))
    network = TinyClassifier(METRICS, "cout/clf_")

    def logits(images: Tensor) -> Tensor:
        return network.logits(images, torch.zeros(len(images)))

    original = predicted_class(logits(x))
    result = cout(x, x_cf, lambda images: probabilities(logits(images)), original, 1 - original)
    close(difference_map(x, x_cf), METRICS.tensor("cout/diffmap"))
    close(result.score, METRICS.tensor("cout/score_per_image"))
    assert mean_interval(result.score).value == near(METRICS.number("cout/score"))
    close(result.original_curve.mean(0), METRICS.tensor("cout/mean_curve_orig_class"))
    close(result.target_curve.mean(0), METRICS.tensor("cout/mean_curve_other_class"))
    close(result.share, METRICS.tensor("cout/indexes"))
    assert METRICS.number("cout/step") == round(float(result.share[1]) * 16 * 16)
    assert not METRICS.unseen("cout/")


def test_shortcut() -> None:
    before, after, task, shortcut = (
        METRICS.array(f"shortcut/{name}")
        for name in ("pred_original", "pred_counterfactual", "task_label", "shortcut_label")
    )
    change = confidence_change(before, after)
    assert mean_interval(absolute_confidence_change(before, after)).value == near(
        METRICS.number("shortcut/MAD")
    )
    for label in (0, 1):
        assert mean_interval(change[shortcut == label]).value == near(METRICS.number(f"shortcut/MD_s{label}"))
    assert auroc(task, before) == near(METRICS.number("shortcut/AUROC_test_u"))
    assert auroc(task, after) == near(METRICS.number("shortcut/AUROC_test_u_cf"))
    assert not METRICS.unseen("shortcut/")


@pytest.mark.parametrize("method", END.groups())
def test_end_to_end(method: str) -> None:
    def array(name: str) -> np.ndarray:
        return END.array(f"{method}/{name}")

    target, conf = array("target"), array("cf_conf")
    p_after = np.where(target == 1, conf, 1 - conf)
    x, x_cf = (from_integers(torch.from_numpy(array(f"{side}_uint8"))) for side in ("orig", "cf"))
    own = {
        "bkl": bounded_kl(p_after),
        "mad": absolute_confidence_change(array("orig_conf"), conf),
        "l_1": l1(x.permute(0, 3, 1, 2), x_cf.permute(0, 3, 1, 2)).numpy(),
    }
    valid = flipped_to(array("pred_cf"), target)
    assert valid.tolist() == flipped(p_after).tolist()
    assert valid.mean() == near(array("FR").item())
    assert 100 * flipped_to(array("pred"), array("label")).mean() == near(array("clean_acc_percent").item())
    for name, values in own.items():
        np.testing.assert_allclose(values, array(name), atol=TOLERANCE)
        assert mean_interval(values).value == near(array(f"mean_{name}").item())
        assert mean_interval(values[valid == 1]).value == near(array(f"mean_{name}_valid").item())
