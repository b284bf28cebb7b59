"""FVA, MNAC and CD: by hand, against scipy, in parts, and on bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr
from torch import Tensor

from fastdime.data.phantoms.face_study import FACE_SMILE
from fastdime.data.phantoms.measure_attributes import attribute_labels, attribute_names, measure_attributes
from fastdime.data.phantoms.phantom import DEFAULT_DIALS, phantom
from fastdime.errors import InputError
from fastdime.metrics.attributes import (
    CorrelationCounts,
    CorrelationDifference,
    attributes_changed,
    correlation_difference,
    label_correlations,
    same_identity,
)

SEED, N = 15_400, 80


def readings(n: int, k: int, seed: int = 0) -> Tensor:
    return torch.rand(n, k, generator=torch.Generator().manual_seed(seed)) < 0.4


def test_the_same_person_is_above_the_threshold_and_an_unknown_one_is_nan() -> None:
    cosine = torch.tensor([0.51, 0.5, -1.0, torch.nan, 1.00001])
    assert same_identity(cosine)[:3].tolist() == [1, 0, 0]
    assert same_identity(cosine)[3].isnan()
    assert same_identity(cosine)[4] == 1
    assert same_identity(cosine, threshold=0.6)[0] == 0


def test_every_changed_attribute_counts() -> None:
    before = torch.tensor([[True, False, True], [False, False, False]])
    after = torch.tensor([[False, True, True], [False, False, False]])
    assert attributes_changed(before, after).tolist() == [2, 0]


@pytest.mark.parametrize("query", [0, 4])
def test_correlations_are_those_of_scipy_pearsonr(query: int) -> None:
    before, after = readings(60, 5, 1), readings(60, 5, 2)
    change = (after.int() - before.int()).double().numpy()
    truth = label_correlations(readings(90, 5, 3), query)
    labels = readings(90, 5, 3).double().numpy()
    by_scipy = [pearsonr(change[:, k], change[:, query]).statistic for k in range(5)]
    true_by_scipy = [pearsonr(labels[:, k], labels[:, query]).statistic for k in range(5)]
    answer = correlation_difference(before, after, query, truth)
    assert answer.correlations.tolist() == pytest.approx(by_scipy, abs=1e-12)
    assert truth.tolist() == pytest.approx(true_by_scipy, abs=1e-12)
    distance = sum(abs(a - b) for a, b in zip(by_scipy, true_by_scipy, strict=True))
    assert answer.value == pytest.approx(distance, abs=1e-12)
    assert (answer.n, answer.reason) == (60, "")


def test_parts_in_any_order_give_the_same_to_the_bit() -> None:
    before, after, truth = readings(50, 4, 1), readings(50, 4, 2), torch.zeros(4)
    whole = correlation_difference(before, after, 2, truth)
    start = CorrelationCounts.start(4, 2)
    parts = [start.update(before[rows], after[rows]) for rows in (slice(31, 50), slice(0, 1), slice(1, 31))]
    merged = parts[0].merge(parts[1]).merge(start).merge(parts[2]).compute(truth)
    one_by_one = start
    for row in range(50):
        one_by_one = one_by_one.update(before[row : row + 1], after[row : row + 1])
    for answer in (merged, one_by_one.compute(truth)):
        assert answer.value == whole.value
        assert torch.equal(answer.correlations, whole.correlations)
    assert start.n == 0  # updating made new counts


def test_labels_given_as_numbers_or_as_yes_and_no_are_the_same() -> None:
    labels = readings(30, 3)
    assert torch.equal(label_correlations(labels, 1), label_correlations(labels.double(), 1))


def test_an_attribute_that_never_changes_is_nan_with_the_reason_or_zero_when_asked() -> None:
    before, after, truth = readings(40, 3, 1), readings(40, 3, 2), torch.tensor([1.0, 0.5, 0.25])
    after[:, 2] = before[:, 2]
    answer = correlation_difference(before, after, 0, truth)
    assert math.isnan(answer.value)
    assert answer.correlations.isnan().tolist() == [False, False, True]
    assert answer.reason == "no correlation: the change of attribute 2 is the same in all 40 images"
    zero = correlation_difference(before, after, 0, truth, constant="zero")
    assert zero.value == pytest.approx(abs(float(zero.correlations[1]) - 0.5) + 0.25)
    assert zero.reason == answer.reason + "; counted as 0"


def test_labels_that_never_vary_are_named() -> None:
    labels = readings(30, 12, 5)
    labels[:, 2:] = True
    truth = label_correlations(labels, 0)
    assert truth.isnan().tolist() == [False] * 2 + [True] * 10
    answer = correlation_difference(readings(30, 12, 1), readings(30, 12, 2), 0, truth)
    assert math.isnan(answer.value)
    assert "the true correlation of attributes 2, 3, 4, 5, 6, 7, 8, 9, ... is NaN" in answer.reason


@pytest.mark.parametrize("constant", ["nan", "zero"])
def test_one_image_or_a_query_that_never_varies_has_no_cd(constant: str) -> None:
    before, after, truth = readings(9, 3, 1), readings(9, 3, 2), torch.zeros(3)
    alone = correlation_difference(before[:1], after[:1], 0, truth, constant)
    assert math.isnan(alone.value)
    assert alone.reason == "no correlation: there is 1 image only"
    before[:, 1], after[:, 1] = True, False
    still = correlation_difference(before, after, 1, truth, constant)
    assert math.isnan(still.value)
    assert "the query, attribute 1, changes the same way in all 9 images" in still.reason


def test_bad_input_is_one_clear_line() -> None:
    yes, truth = readings(5, 3), torch.zeros(3)
    with pytest.raises(InputError, match=r"cosine: expected numbers from -1 to 1, got 1\.5"):
        same_identity(torch.tensor([0.1, 1.5]))
    with pytest.raises(InputError, match="cosine: expected one float for each of one or more images"):
        same_identity(torch.empty(0))
    with pytest.raises(InputError, match=r"attributes after: expected shape \(5, 3\), got \(4, 3\)"):
        attributes_changed(yes, yes[:4])
    with pytest.raises(InputError, match=r"attributes before: expected True or False, .* got torch.float32"):
        attributes_changed(yes.float(), yes)
    with pytest.raises(InputError, match=r"attributes before: expected .* got torch.bool \(0, 3\)"):
        correlation_difference(yes[:0], yes[:0], 0, truth)
    with pytest.raises(InputError, match="query: expected a place from 0 to 2, got 3"):
        correlation_difference(yes, yes, 3, truth)
    with pytest.raises(InputError, match=r"truth_correlations: expected 3 numbers, got shape \(2,\)"):
        correlation_difference(yes, yes, 0, truth[:2])
    with pytest.raises(InputError, match="truth_correlations: expected from -1 to 1, got 7"):
        correlation_difference(yes, yes, 0, truth + 7)
    with pytest.raises(InputError, match="constant: expected nan or zero, got 'drop'"):
        correlation_difference(yes, yes, 0, truth, "drop")
    with pytest.raises(InputError, match="labels: expected 1 and 0, got nan; leave out"):
        label_correlations(torch.tensor([[1.0, torch.nan]]), 0)
    with pytest.raises(InputError, match="labels: expected 1 and 0, got -1"):
        label_correlations(torch.tensor([[1, -1]]), 0)
    with pytest.raises(InputError, match="images for CD: expected at least one, got none"):
        CorrelationCounts.start(3, 0).compute(truth)
    with pytest.raises(InputError, match="counts to merge: expected 3 attributes and query 0, got 3 attri"):
        CorrelationCounts.start(3, 0).merge(CorrelationCounts.start(3, 1))
    with pytest.raises(InputError, match="attributes: expected 4 an image, got 3"):
        CorrelationCounts.start(4, 0).update(yes, yes)


def portraits(smile: Tensor, glasses: Tensor | None = None, young: Tensor | None = None) -> Tensor:
    """Draw faces of the same people; what is not given is as it was drawn."""
    pictures = []
    for index in range(len(smile)):
        subject = FACE_SMILE.subject(SEED, index, DEFAULT_DIALS)
        if young is not None:
            body = {**subject.body, "z": 1.5 if young[index] else -1.5}
            subject = replace(subject, body={**body, **FACE_SMILE.show_task(body)})
        shows = index % 4 < 2 if glasses is None else bool(glasses[index])
        pictures.append(FACE_SMILE.scene(subject, DEFAULT_DIALS, 64).picture(bool(smile[index]), shows))
    return torch.from_numpy(np.stack(pictures)).float()


@pytest.fixture(scope="module")
def faces() -> dict[str, tuple[float, CorrelationDifference]]:
    """MNAC and CD of counterfactuals that switch the smile: alone, with glasses, with age."""
    smile = torch.arange(N) % 2 == 1
    latents, labels = (
        part(SEED, range(2000)) for part in (phantom("face-smile").latents, phantom("face-smile").labels)
    )
    true = attribute_labels("face-smile", latents, labels)
    query = true.place("smile")
    truth = label_correlations(true.values, query)
    found = {}
    for kind in ("alone", "glasses", "young"):
        before, after = (
            measure_attributes("face-smile", portraits(s, **({} if kind == "alone" else {kind: s}))).values
            for s in (smile, ~smile)
        )
        answer = correlation_difference(before, after, query, truth, constant="zero")
        found[kind] = float(attributes_changed(before, after).double().mean()), answer
    return found


def test_exact_counterfactuals_of_faces_change_the_smile_and_hardly_more(
    faces: dict[str, tuple[float, CorrelationDifference]],
) -> None:
    mnac, cd = faces["alone"]
    assert 0.95 < mnac < 1.2  # 1.06
    assert cd.value < 0.6  # .35


@pytest.mark.parametrize(
    ("kind", "changed"), [("glasses", 2), ("young", 4)]
)  # age greys and so lightens hair
def test_counterfactuals_that_change_another_attribute_with_the_smile_are_found_out(
    faces: dict[str, tuple[float, CorrelationDifference]], kind: str, changed: int
) -> None:
    mnac, cd = faces[kind]
    assert changed - 0.7 < mnac < changed + 0.3
    assert cd.value > faces["alone"][1].value + 0.7  # 1.14 and 2.98
    assert cd.correlations[attribute_names("face-smile").index(kind)] > 0.8
