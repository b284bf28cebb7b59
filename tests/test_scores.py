import pytest
import torch

from fastdime.errors import InputError
from fastdime.scores import class_count, log_odds, predicted_class, probabilities


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_log_odds_belong_to_the_softmax(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = (3 * torch.randn(6, classes, generator=generator, dtype=torch.float64)).requires_grad_()
    target = torch.arange(6) % classes
    own = log_odds(logits, target)
    log_p = logits.log_softmax(1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(own.sigmoid(), log_p.exp())
    (slope,) = torch.autograd.grad(torch.nn.functional.logsigmoid(own).sum(), logits)
    (wanted,) = torch.autograd.grad(log_p.sum(), logits)
    torch.testing.assert_close(slope, wanted)


def test_one_log_odds_equals_a_softmax_of_two() -> None:
    one = torch.tensor([[-2.0], [0.5], [4.0]])
    two = torch.cat([torch.zeros_like(one), one], dim=1)
    target = torch.tensor([0, 1, 0])
    torch.testing.assert_close(log_odds(one, target), torch.tensor([2.0, 0.5, -4.0]))
    torch.testing.assert_close(log_odds(one, target), log_odds(two, target))
    torch.testing.assert_close(probabilities(one), probabilities(two))
    assert torch.equal(predicted_class(one), predicted_class(two))
    assert class_count(one) == class_count(two) == 2


def test_probabilities_keep_their_precision_at_the_ends() -> None:
    small = probabilities(torch.tensor([[30.0]]))[0, 0]  # 1 - sigmoid(30) would be 0 in float32
    torch.testing.assert_close(small, torch.tensor(-30.0).exp())


def test_predicted_class_is_the_most_probable_one() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [0.0, -1.0, -2.0]])
    assert predicted_class(logits).tolist() == [1, 0]
    assert predicted_class(logits).dtype == torch.int64
    assert predicted_class(torch.tensor([[0.0]])).tolist() == [0]


@pytest.mark.parametrize(
    ("shape", "target", "sentence"),
    [
        ((3,), torch.zeros(3, dtype=torch.int64), "logits: expected shape"),
        ((3, 0), torch.zeros(3, dtype=torch.int64), "logits: expected shape"),
        ((3, 2), torch.zeros(2, dtype=torch.int64), r"target: expected whole numbers of shape \(3,\)"),
        ((3, 2), torch.zeros(3), "torch.float32"),
    ],
)
def test_wrong_shapes_are_refused(shape: tuple[int, ...], target: torch.Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        log_odds(torch.zeros(shape), target)
