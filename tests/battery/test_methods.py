"""What every method must pass. There is no code for a single method here: a new line in METHODS is tested."""

import copy
import weakref

import numpy as np
import pytest
import torch

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.ladder import climb
from fastdime.counterfactuals.methods import METHODS, PRESETS, cost, run
from fastdime.counterfactuals.problem import Problem
from fastdime.errors import InputError
from fastdime.noise import SeededNoise
from fastdime.pixels import to_grid
from fastdime.scores import predicted_class, probabilities
from fastdime.types import Counterfactuals
from support import tiny

every_method = pytest.mark.parametrize("method", METHODS)
IDS = ["a", "b", "c"]


def explainer(method: str, channels: int = 1, **changes: object) -> Explainer:
    return Explainer(
        tiny.denoiser(channels), tiny.classifier(channels), tiny.small(method, **changes), seed=3
    )


def same(one: Counterfactuals, other: Counterfactuals, rows: list[int]) -> None:
    torch.testing.assert_close(one.x_cf, other.x_cf[rows], atol=1e-4, rtol=0)
    assert torch.equal(one.mask, other.mask[rows])
    assert torch.equal(one.valid, other.valid[rows])
    assert torch.equal(one.denoiser_calls, other.denoiser_calls[rows])


@every_method
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(16, 16), (13, 21)])
def test_shape_range_and_grid(method: str, channels: int, height: int, width: int) -> None:
    x = tiny.images(2, channels, height, width)
    result = explainer(method, channels)(x)
    assert result.x_cf.shape == x.shape
    assert result.mask.shape == (2, 1, height, width)
    assert result.x_cf.dtype == x.dtype
    assert result.x_cf.abs().max() <= 1
    assert torch.equal(result.x_cf, to_grid(result.x_cf))
    assert not result.x_cf.requires_grad
    assert not torch.equal(result.x_cf, x)


@every_method
def test_the_seed_decides(method: str) -> None:
    x = tiny.images()
    one = explainer(method)
    assert torch.equal(one(x, ids=IDS).x_cf, one(x, ids=IDS).x_cf)
    other = Explainer(one.denoiser, one.classifier, one.settings, seed=4)
    assert not torch.equal(one(x, ids=IDS).x_cf, other(x, ids=IDS).x_cf)


@every_method
def test_batch_and_order_do_not_matter(method: str) -> None:
    x, make = tiny.images(), explainer(method)
    together = make(x, ids=IDS)
    for row, name in enumerate(IDS):
        same(make(x[row : row + 1], ids=[name]), together, [row])
    order = [2, 0, 1]
    same(make(x[order], ids=[IDS[row] for row in order]), together, order)


@every_method
def test_untouched_pixels_are_equal_bit_for_bit(method: str) -> None:
    x = tiny.images()
    result = explainer(method)(x)
    outside = ~result.mask.expand_as(x)
    assert torch.equal(result.x_cf[outside], x[outside])


@every_method
def test_an_input_off_the_grid_stays_as_it_is_outside_the_mask(method: str) -> None:
    x = tiny.images() * 0.7123
    region = torch.zeros(3, 1, 16, 16, dtype=torch.bool)
    region[:, :, 4:12, 4:12] = True
    result = explainer(method)(x, region=region)
    outside = ~region.expand_as(x)
    assert torch.equal(result.x_cf[outside], x[outside])
    assert not (result.mask & ~region).any()


@every_method
def test_an_empty_region_changes_nothing(method: str) -> None:
    x = tiny.images()
    result = explainer(method)(x, region=torch.zeros(3, 1, 16, 16, dtype=torch.bool))
    assert torch.equal(result.x_cf, x)
    assert not result.valid.any()


@every_method
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "default"])
def test_regions_hold_for_the_published_presets(method: str, preset: str) -> None:
    x = tiny.images()
    region = torch.zeros(3, 1, 16, 16, dtype=torch.bool)
    region[:, :, :8] = True
    settings = tiny.small(method, preset)
    make = Explainer(tiny.denoiser(), tiny.classifier(), settings, features=lambda image: image)
    result = make(x, region=region)
    assert result.x_cf.isfinite().all()
    assert torch.equal(result.x_cf[:, :, 8:], x[:, :, 8:])
    assert not torch.equal(result.x_cf, x)


@every_method
def test_models_are_left_as_found(method: str) -> None:
    make = explainer(method)
    networks = [make.denoiser.network, make.classifier.module]
    networks[0].train()
    networks[1].eval()
    networks[1].head.requires_grad_(False)
    weights = [copy.deepcopy(network.state_dict()) for network in networks]
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 (the global state is the point)
    make(tiny.images())
    assert networks[0].training
    assert networks[0].dropout.training
    assert not networks[1].training
    assert networks[1].features.weight.requires_grad
    assert not networks[1].head.weight.requires_grad
    assert all(weight.grad is None for network in networks for weight in network.parameters())
    for network, before in zip(networks, weights, strict=True):
        assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002 (as above)


@every_method
def test_models_are_left_as_found_after_an_error(method: str) -> None:
    make = explainer(method)
    make.denoiser.network.train()

    def fails(*_: object) -> None:
        raise RuntimeError("broken")

    hook = make.denoiser.network.register_forward_hook(fails)
    with pytest.raises(RuntimeError, match="broken"):
        make(tiny.images())
    hook.remove()
    assert make.denoiser.network.training
    assert make.classifier.module.head.weight.requires_grad


@every_method
def test_validity_is_judged_on_the_image_that_is_returned(method: str) -> None:
    x, make = tiny.images(), explainer(method)
    result = make(x)
    make.classifier.module.eval()
    with torch.no_grad():
        logits = make.classifier.logits(result.x_cf, torch.zeros(3, dtype=torch.int64))
    p = probabilities(logits).gather(1, result.target[:, None])[:, 0]
    torch.testing.assert_close(p, result.p_after)
    assert torch.equal(predicted_class(logits) == result.target, result.valid)
    assert torch.equal(result.target, 1 - result.predicted)


@every_method
def test_a_target_that_is_met_leaves_the_image_alone(method: str) -> None:
    x, make = tiny.images(), explainer(method)
    predicted = make(x).predicted
    result = make(x, predicted)
    assert result.valid.all()
    assert torch.equal(result.x_cf, x)
    assert torch.equal(result.p_after, result.p_before)
    assert not result.denoiser_calls.any()
    pushed = explainer(method, skip_if_met=False)(x, predicted)
    assert (pushed.denoiser_calls > 0).all()


@every_method
def test_cost_is_what_is_measured(method: str) -> None:
    settings = tiny.small(method, scales=[0.001])
    result = Explainer(tiny.denoiser(), tiny.classifier(), settings)(tiny.images())
    denoiser, gradient = cost(settings)
    if settings.adaptive:
        assert 0 < result.denoiser_calls.min() <= result.denoiser_calls.max() <= denoiser
        assert 0 < result.gradient_calls.min() <= result.gradient_calls.max() <= gradient
    else:
        assert result.denoiser_calls.tolist() == [denoiser] * 3
        assert result.gradient_calls.tolist() == [gradient] * 3


@every_method
def test_the_ladder_stops_where_the_target_is_reached(method: str) -> None:
    settings = tiny.small(method, scales=[0.0001, 50.0])
    tried: list[tuple[list[int], float]] = []
    denoiser, classifier = tiny.denoiser(), tiny.classifier()
    denoiser.network.eval()
    classifier.module.eval().requires_grad_(False)
    x = tiny.images()
    with torch.no_grad():
        predicted = predicted_class(classifier.logits(x, torch.zeros(3, dtype=torch.int64)))
        problem = Problem(x, 1 - predicted, denoiser, classifier, SeededNoise(0, IDS))
        result = climb(problem, settings, inspect=lambda rows, scale, _: tried.append((rows.tolist(), scale)))
    assert tried[0] == ([0, 1, 2], 0.0001)
    reached_first = {row for row in range(3) if result.valid[row] and result.scale[row] < 1}
    if len(tried) > 1:
        assert tried[1] == ([row for row in range(3) if row not in reached_first], 50.0)
    else:
        assert reached_first == {0, 1, 2}


@every_method
@pytest.mark.parametrize("kind", ["multilabel", "multiclass"])
def test_other_outputs(method: str, kind: str) -> None:
    spec = {"kind": kind, "column": 2} if kind == "multilabel" else {"kind": kind}
    classifier = tiny.classifier(1, 4, **spec)
    x = tiny.images()
    make = Explainer(tiny.denoiser(), classifier, tiny.small(method))
    flipped = make(x)
    assert (flipped.target != flipped.predicted).all()
    assert flipped.target.max() < (2 if kind == "multilabel" else 4)
    chosen = make(x, 1)
    assert chosen.target.tolist() == [1, 1, 1]
    each = torch.tensor([0, 1, 0])
    assert torch.equal(make(x, each).target, each)


@every_method
def test_recorded_steps(method: str) -> None:
    x, make = tiny.images(), explainer(method, scales=[0.001, 0.002])
    result = make(x, record=[0, 2])
    assert len(result.trajectory) == 2
    for moment in result.trajectory:
        assert moment.x_t.shape == moment.x0_hat.shape == x.shape
        assert moment.mask.shape == (3, 1, 16, 16)
        assert moment.mask.dtype == torch.bool
    assert not make(x).trajectory
    torch.testing.assert_close(make(x).x_cf, result.x_cf, atol=0, rtol=0)


@every_method
def test_steps_are_told(method: str) -> None:
    told: list[tuple[int, int]] = []
    explainer(method, scales=[0.001])(tiny.images(), tick=lambda done, of: told.append((done, of)))
    assert [done for done, _ in told] == list(range(1, told[0][1] + 1))
    assert {of for _, of in told} == {len(told)}


@every_method
def test_nothing_of_earlier_steps_is_kept(method: str) -> None:
    """Memory does not grow with the steps: states of old steps are gone when the chain ends."""
    settings = tiny.small(method)
    states: list[weakref.ref] = []
    denoiser, classifier = tiny.denoiser(), tiny.classifier()
    for network in (denoiser.network, classifier.module):
        network.eval().requires_grad_(False)
    problem = Problem(
        tiny.images(), torch.zeros(3, dtype=torch.int64), denoiser, classifier, SeededNoise(0, IDS)
    )
    with torch.no_grad():
        run(problem, settings, 1.0, lambda event: states.append(weakref.ref(event.x0_hat)))
    assert sum(state() is not None for state in states) <= 1
    assert len(states) >= 3


@every_method
@pytest.mark.parametrize("bits", [8, 16])
def test_depth(method: str, bits: int) -> None:
    x = tiny.images(bits=bits)
    make = Explainer(tiny.denoiser(), tiny.classifier(), tiny.small(method), bits=bits)
    result = make(x)
    assert torch.equal(result.x_cf, to_grid(result.x_cf, bits))


BAD = {
    "three dimensions": (lambda x: x[0], {}, "shape"),
    "integers": (lambda x: (x * 100).to(torch.uint8), {}, "float32"),
    "doubles": (lambda x: x.double(), {}, "float32"),
    "no image": (lambda x: x[:0], {}, "at least one image"),
    "two channels": (lambda x: x.expand(-1, 2, -1, -1), {}, "channels"),
    "range 0..255": (lambda x: (x + 1) * 127.5, {}, r"\[-1, 1\]"),
    "NaN": (lambda x: x * float("nan"), {}, "finite"),
    "ids of another length": (lambda x: x, {"ids": ["a"]}, "different names"),
    "equal ids": (lambda x: x, {"ids": ["a", "a", "b"]}, "different names"),
    "unknown target": (lambda x: x, {"target": "flop"}, "did you mean 'flip'"),
    "class out of range": (lambda x: x, {"target": 2}, "classes 0 to 1"),
    "one target too few": (lambda x: x, {"target": torch.zeros(2, dtype=torch.int64)}, "one class"),
    "a class with a fraction": (lambda x: x, {"target": torch.full((3,), 0.5)}, "whole numbers"),
    "labels too short": (lambda x: x, {"target": "flip-label", "labels": torch.zeros(2).long()}, "one class"),
    "a step that is not there": (lambda x: x, {"record": [100]}, "record: expected a list of steps"),
    "no labels": (lambda x: x, {"target": "flip-label"}, "a label for each"),
    "region of another size": (lambda x: x, {"region": torch.ones(3, 1, 4, 4, dtype=torch.bool)}, "region"),
    "region of numbers": (lambda x: x, {"region": torch.ones(3, 1, 16, 16)}, "region"),
}


@every_method
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line(method: str, name: str) -> None:
    spoil, options, words = BAD[name]
    with pytest.raises(InputError, match=words) as caught:
        explainer(method)(spoil(tiny.images()), **options)
    assert "\n" not in str(caught.value)


@every_method
def test_one_image_that_diverges_does_not_spoil_the_others(method: str) -> None:
    """The classifier of image 1 has no bounds; its neighbours come out as without it."""

    class Steep(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calm = 20 * x.tanh().mean((1, 2, 3))
            return torch.where(x[:, 0, 0, 0] > 0.99, 1e30 * x.mean((1, 2, 3)), calm)[:, None]

    x = tiny.images().clamp(-0.9, 0.9)
    x[1, 0] = 1.0
    alone = Explainer(tiny.denoiser(), ImageClassifier(Steep()), tiny.small(method))
    together = alone(x, ids=IDS)
    assert together.x_cf.isfinite().all()
    same(alone(x[[0, 2]], ids=["a", "c"]), together, [0, 2])
