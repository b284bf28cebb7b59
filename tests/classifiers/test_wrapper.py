from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.errors import InputError
from fastdime.scores import probabilities
from fastdime.types import Classifier

CLEAN = torch.zeros(2, dtype=torch.int64)


@pytest.fixture
def x() -> Tensor:
    return torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1


def seen(classifier: ImageClassifier, x: Tensor) -> Tensor:
    """What the network is given."""
    given: list[Tensor] = []

    def spy(images: Tensor) -> Tensor:
        given.append(images)
        return images.mean((1, 2, 3))

    replace(classifier, module=spy).logits(x, CLEAN)
    return given[0]


def means(images: Tensor) -> Tensor:
    return images.mean((2, 3))


def test_it_is_a_classifier(x: Tensor) -> None:
    classifier = ImageClassifier(lambda images: images.mean((1, 2, 3)))
    assert isinstance(classifier, Classifier)
    assert classifier.logits(x, CLEAN).shape == (2, 1)


def test_by_default_the_network_sees_the_image_itself(x: Tensor) -> None:
    assert torch.equal(seen(ImageClassifier(means), x), x)


def test_range_then_mean_and_std(x: Tensor) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    given = seen(ImageClassifier(means, low=0.0, high=1.0, mean=mean, std=std), x)
    for channel in range(3):
        wanted = (x[:, channel] / 2 + 0.5 - mean[channel]) / std[channel]
        torch.testing.assert_close(given[:, channel], wanted)
    torch.testing.assert_close(seen(ImageClassifier(means, low=0.0, high=255.0), x), (x + 1) * 127.5)


def test_channels_are_the_wrappers_business(x: Tensor) -> None:
    gray = seen(ImageClassifier(means, channels=1), x)
    torch.testing.assert_close(gray[:, 0], 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2])
    colour = seen(ImageClassifier(means, channels=3), x[:, :1])
    assert torch.equal(colour, torch.cat([x[:, :1]] * 3, dim=1))
    assert torch.equal(seen(ImageClassifier(means, channels=3), x), x)


def test_size_averages_when_it_shrinks_and_keeps_the_gradient(x: Tensor) -> None:
    x.requires_grad_()
    given = seen(ImageClassifier(means, size=2), x)
    assert given.shape == (2, 3, 2, 2)
    (slope,) = torch.autograd.grad(given.sum(), x)
    assert (slope > 0).all()  # without anti-aliasing most pixels would not count
    torch.testing.assert_close(slope.sum(), torch.tensor(24.0))  # weights of one pixel's average sum to 1
    assert torch.equal(seen(ImageClassifier(means, size=8), x), x)


def test_kinds_of_output(x: Tensor) -> None:
    torch.testing.assert_close(ImageClassifier(means, kind="multiclass").logits(x, CLEAN), means(x))
    label = ImageClassifier(means, kind="multilabel", column=2)
    torch.testing.assert_close(label.logits(x, CLEAN), means(x)[:, 2:])


def test_all_outputs_of_a_multilabel_network(x: Tensor) -> None:
    label = ImageClassifier(means, kind="multilabel")
    assert torch.equal(label.outputs(x, CLEAN), means(x))
    assert torch.equal(replace(label, column=2).outputs(x, CLEAN), means(x))
    with pytest.raises(InputError, match=r"column of the classifier: .* got None for kind 'multilabel'"):
        label.logits(x, CLEAN)
    with pytest.raises(
        InputError, match=r"expected shape \(2, 1 or more\) for kind 'multilabel', got \(2,\)"
    ):
        replace(label, module=lambda images: images.mean((1, 2, 3))).outputs(x, CLEAN)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_all_outputs_of_other_networks_are_their_logits(kind: Any, x: Tensor) -> None:
    p = torch.tensor([[0.25], [0.5]]) if kind == "binary" else torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    classifier = ImageClassifier(lambda _: p, kind=kind, output="probability")
    assert torch.equal(classifier.outputs(x, CLEAN), classifier.logits(x, CLEAN))


@pytest.mark.parametrize(
    ("kind", "column", "p"),
    [
        ("binary", None, torch.tensor([[0.25], [0.9]])),
        ("multilabel", 1, torch.tensor([[0.5, 0.25], [0.1, 0.9]])),
        ("multiclass", None, torch.tensor([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]])),
    ],
)
def test_probabilities_become_logits(kind: Any, column: int | None, p: Tensor, x: Tensor) -> None:
    classifier = ImageClassifier(lambda _: p, kind=kind, column=column, output="probability")
    back = probabilities(classifier.logits(x, CLEAN))
    wanted = p if kind == "multiclass" else p[:, -1:]
    torch.testing.assert_close(back[:, -wanted.shape[1] :], wanted)


def test_certain_probabilities_have_finite_logits(x: Tensor) -> None:
    sure = ImageClassifier(lambda _: torch.tensor([0.0, 1.0]), output="probability").logits(x, CLEAN)
    assert sure.isfinite().all()
    assert sure[0, 0] < -13
    assert sure[1, 0] > 13


def test_a_timed_network_is_told_the_time(x: Tensor) -> None:
    classifier = ImageClassifier(lambda images, time: images.mean((1, 2, 3)) + time, timed=True)
    plain = ImageClassifier(lambda images: images.mean((1, 2, 3)))
    later = classifier.logits(x, torch.tensor([0, 7])) - plain.logits(x, CLEAN)
    torch.testing.assert_close(later[:, 0], torch.tensor([0.0, 7.0]))


def test_an_object_with_logits_is_understood(x: Tensor) -> None:
    classifier = ImageClassifier(lambda images: SimpleNamespace(logits=means(images)), kind="multiclass")
    assert torch.equal(classifier.logits(x, CLEAN), means(x))


def test_a_network_in_training_mode_is_used_in_evaluation_mode_and_left_as_found(x: Tensor) -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(), nn.Flatten(), nn.Linear(192, 1))
    network[2].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    scores = ImageClassifier(network).logits(x, CLEAN)
    assert [part.training for part in network] == [True, True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    torch.testing.assert_close(ImageClassifier(network.eval()).logits(x, CLEAN), scores)


@pytest.mark.parametrize(
    ("settings", "output", "sentence"),
    [
        ({}, torch.zeros(2, 2), r"expected shape \(2, 1\) for kind 'binary', got \(2, 2\); set kind to"),
        ({}, torch.zeros(1, 1), r"got \(1, 1\)"),
        ({}, torch.zeros(()), r"got \(\)"),
        ({"kind": "multiclass"}, torch.zeros(2, 1), r"expected shape \(2, 2 or more\)"),
        ({"kind": "multiclass"}, torch.zeros(2), r"got \(2,\)"),
        ({"kind": "multilabel", "column": 3}, torch.zeros(2, 3), "more than column 3"),
        (
            {},
            torch.tensor([0.0, float("nan")]),
            r"finite numbers, got NaN .* for image\(s\) 1 of",
        ),
        ({}, "text", "expected a tensor of floats, got str"),
        ({}, torch.zeros(2, dtype=torch.int64), "got torch.int64"),
        (
            {"output": "probability"},
            torch.tensor([0.5, -2.0]),
            r"probabilities in \[0, 1\], got -2; set output to 'logit'",
        ),
        ({"output": "probability", "kind": "multiclass"}, torch.full((2, 2), 0.75), "sum to 1, got 1.5"),
    ],
)
def test_wrong_outputs_are_refused(
    settings: dict[str, Any], output: object, sentence: str, x: Tensor
) -> None:
    with pytest.raises(InputError, match=f"output of the classifier: .*{sentence}"):
        ImageClassifier(lambda _: output, **settings).logits(x, CLEAN)


def test_a_label_nobody_asked_for_may_be_nan(x: Tensor) -> None:
    output = torch.tensor([[float("nan"), 1.0]] * 2)
    scores = ImageClassifier(lambda _: output, kind="multilabel", column=1).logits(x, CLEAN)
    assert scores.tolist() == [[1.0], [1.0]]
    with pytest.raises(InputError, match="finite numbers"):
        ImageClassifier(lambda _: output, kind="multilabel", column=1).outputs(x, CLEAN)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (
            nn.Conv2d(1, 1, 3),
            r"takes images of shape \(2, 3, 8, 8\), got RuntimeError: .*channels",
        ),
        (lambda images, time: images, "got TypeError"),
        (lambda images: torch._assert(images.shape[-1] == 224, "224 pixels"), "AssertionError: 224 pixels"),
    ],
)
def test_a_network_that_refuses_the_images_gets_one_line(module: Any, sentence: str, x: Tensor) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        ImageClassifier(module).logits(x, CLEAN)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_lack_of_memory_is_passed_on(x: Tensor) -> None:
    def hungry(_: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("too much")

    with pytest.raises(torch.OutOfMemoryError):
        ImageClassifier(hungry).logits(x, CLEAN)


@pytest.mark.parametrize(
    ("settings", "channels", "sentence"),
    [
        ({"channels": 3}, 2, r"images for the classifier: expected 3 channel\(s\), got 2"),
        ({"mean": (0.5,), "std": (0.5,)}, 3, r"expected 1 channel\(s\), got 3; set its channels"),
    ],
)
def test_other_channels_are_refused(settings: dict[str, Any], channels: int, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ImageClassifier(means, **settings).logits(torch.zeros(2, channels, 8, 8), CLEAN)


def test_images_without_a_batch_are_refused() -> None:
    with pytest.raises(InputError, match=r"images: expected shape .*, got \(3, 8, 8\)"):
        ImageClassifier(means).logits(torch.zeros(3, 8, 8), CLEAN)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"module": 3}, "expected a network or a function, got int"),
        ({"kind": "binary", "column": 1}, "got 1 for kind 'binary'"),
        ({"kind": "multilabel", "column": -1}, "got -1"),
        ({"channels": 2}, "expected 1, 3 or none, got 2"),
        ({"size": 0}, "size of the classifier"),
        ({"low": 1.0}, "expected low < high, got 1.0 and 1.0"),
        ({"mean": (0.5,)}, "mean and std"),
        ({"mean": (0.5,) * 3, "std": (0.5, 0.5, 0.0)}, "every std > 0"),
        ({"mean": (0.5,), "std": (0.5,), "channels": 3}, r"for 3 channel\(s\)"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ImageClassifier(**({"module": means} | settings))
