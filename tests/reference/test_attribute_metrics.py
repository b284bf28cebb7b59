"""FVA, MNAC and CD as the published programs compute them."""

import pytest
import torch
from torch.nn.functional import cosine_similarity

from fastdime.metrics.attributes import (
    attributes_changed,
    correlation_difference,
    label_correlations,
    same_identity,
)
from support.recordings import TOLERANCE, Recording, close


def test_attributes_changed_and_correlations() -> None:
    recorded = Recording("metrics")
    before, after = (recorded.tensor(f"oracle/logits_{name}") > 0 for name in ("original", "counterfactual"))
    changed = attributes_changed(before, after)
    assert torch.equal(changed.sort().values, recorded.tensor("mnac/changed_per_image_sorted"))
    assert changed.double().mean().item() == pytest.approx(recorded.number("mnac/value"), abs=TOLERANCE)
    query = int(recorded.number("cd/query"))
    train = recorded.tensor("cd/train_like_labels01")[recorded.tensor("cd/partition") == 0]
    truth = label_correlations(train, query)
    close(truth, recorded.tensor("cd/gt_corr"))
    answer = correlation_difference(before, after, query, truth)
    close(answer.correlations, recorded.tensor("cd/cf_corr"))
    assert answer.value == pytest.approx(recorded.number("cd/value"), abs=TOLERANCE)
    assert not recorded.unseen("oracle/") | recorded.unseen("mnac/") | recorded.unseen("cd/")


def test_face_verification() -> None:
    recorded = Recording("metrics")
    features = (recorded.tensor(f"fva/feat_{name}") for name in ("original", "counterfactual"))
    cosine = cosine_similarity(*features)
    assert cosine.mean().item() == pytest.approx(recorded.number("fva/mean_cosine"), abs=TOLERANCE)
    assert same_identity(cosine).mean().item() == pytest.approx(recorded.number("fva/value"), abs=TOLERANCE)
    assert not recorded.unseen("fva/")
