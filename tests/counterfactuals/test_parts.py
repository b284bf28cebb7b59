"""Masks, losses, targets, settings, the ladder's keeping rule: the small parts by hand."""

import pytest
import torch

from fastdime.counterfactuals.ace import distance_gradient
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.guidance import class_loss, l1_gradient, l2_gradient, perceptual_gradient
from fastdime.counterfactuals.ladder import climb, settle
from fastdime.counterfactuals.loop import Edit
from fastdime.counterfactuals.masks import difference_map, difference_mask, dilate, grown, top_mask
from fastdime.counterfactuals.methods import METHODS, PRESETS, settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.targets import choose_target
from fastdime.errors import InputError
from fastdime.noise import SeededNoise
from fastdime.types import Counterfactuals
from support import tiny


def test_equal_images_have_a_full_mask_and_no_nan() -> None:
    x = tiny.images()
    assert torch.equal(difference_map(x, x), torch.ones(3, 1, 16, 16))
    assert difference_mask(x, x, 3, 0.5).all()


def test_the_mask_is_normalised_for_each_image() -> None:
    x = torch.zeros(2, 3, 5, 5)
    image = x.clone()
    image[0, :, 2, 2] = 0.01
    image[1, :, 0, 0], image[1, 1, 4, 4] = 1.0, 0.3
    mask = difference_mask(x, image, 1, 0.15)
    assert mask.sum((1, 2, 3)).tolist() == [1, 1]
    assert difference_mask(x, image, 3, 0.15).sum((1, 2, 3)).tolist() == [9, 4]


def test_dilation_spreads_the_maximum() -> None:
    spot = torch.zeros(1, 1, 5, 5)
    spot[0, 0, 2, 2] = 0.5
    assert dilate(spot, 3)[0, 0, 1:4, 1:4].eq(0.5).all()
    assert dilate(spot, 3).sum() == 4.5


def test_a_mask_grows_along_what_is_faint() -> None:
    """Round corners and over diagonals, but not across a gap; each image for itself."""
    picture = torch.zeros(2, 1, 4, 6)
    picture[0, 0, 0, :3] = picture[0, 0, 1, 3] = picture[0, 0, 2, 3] = 0.2
    picture[0, 0, 2, 5] = 0.4
    strong = picture.clone()
    strong[0, 0, 0, 0] = 0.5
    assert torch.equal(grown(strong, 0.5, 0.2)[0], (picture[0] > 0) & (picture[0] < 0.4))
    assert not grown(picture, 0.5, 0.2).any()
    assert grown(strong, 0.5, 0.3).sum() == 1
    assert torch.equal(grown(strong[:1], 0.5, 0.2), grown(strong, 0.5, 0.2)[:1])


def test_ties_go_to_the_first_place() -> None:
    mask = top_mask(torch.ones(1, 1, 2, 3), 2, 1)
    assert mask.flatten().tolist() == [True, True, False, False, False, False]


def test_class_loss() -> None:
    logits, target = torch.tensor([[2.0], [2.0]]), torch.tensor([1, 0])
    assert class_loss(logits, target, "logit").tolist() == [-2.0, 2.0]
    wanted = -torch.tensor([2.0, -2.0]).sigmoid().log()
    torch.testing.assert_close(class_loss(logits, target, "log-probability"), wanted)
    torch.testing.assert_close(class_loss(logits, target, "probability"), wanted)


def test_a_rounded_probability_has_no_gradient_and_the_default_does() -> None:
    for kind, dead in (("probability", True), ("log-probability", False)):
        logits = torch.tensor([[40.0]], requires_grad=True)
        class_loss(logits, torch.tensor([0]), kind).sum().backward()
        assert (logits.grad.abs().max() < 1e-3) == dead


def test_distance_gradients_match_autograd() -> None:
    x = tiny.images(2, 3)
    image = (x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    (image - x).abs().sum().backward()
    torch.testing.assert_close(l1_gradient(image.detach(), x), image.grad)
    image.grad = None
    (image - x).norm(dim=1).sum().backward()
    torch.testing.assert_close(l2_gradient(image.detach(), x), image.grad)
    assert not l2_gradient(x, x).any()


def test_the_perceptual_gradient_does_not_depend_on_the_batch() -> None:
    x, image = tiny.images(), tiny.images().flip(0)
    together = perceptual_gradient(torch.sin, image, torch.sin(x))
    alone = perceptual_gradient(torch.sin, image[1:2], torch.sin(x[1:2]))
    torch.testing.assert_close(alone, together[1:2])


def test_targets() -> None:
    two = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    three = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])
    assert choose_target("flip", two).tolist() == [1, 0]
    assert choose_target("flip", three).tolist() == [2, 2]
    assert choose_target("flip-label", two, torch.tensor([1, 1])).tolist() == [0, 0]
    assert choose_target(2, three).tolist() == [2, 2]
    with pytest.raises(InputError, match="two classes"):
        choose_target("flip-label", three, torch.tensor([1, 1]))
    with pytest.raises(InputError, match="classes 0 to 1"):
        choose_target("flip-label", two, torch.tensor([1, 3]))


def test_settings_name_what_is_wrong() -> None:
    with pytest.raises(InputError, match="did you mean 'fastdime'"):
        settings_for("fastdim")
    with pytest.raises(InputError, match="did you mean 'medical'"):
        settings_for("fastdime", "medicl")
    with pytest.raises(InputError, match="did you mean 'dilation'"):
        settings_for("fastdime", dilatoin=3)
    with pytest.raises(InputError, match="dilation: expected an odd number of pixels, got 4"):
        settings_for("fastdime", dilation=4)
    with pytest.raises(InputError, match="tau: expected greater than or equal to 1, got 0"):
        settings_for("fastdime", tau=0)
    with pytest.raises(InputError, match="setting of fastdime: scales"):
        settings_for("fastdime", scales=())


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_every_preset(method: str, preset: str) -> None:
    settings = settings_for(method, preset)
    assert type(settings).model_validate_json(settings.model_dump_json()) == settings


def test_the_published_values() -> None:
    celeba, medical = settings_for("fastdime", "celeba"), settings_for("fastdime", "medical")
    assert (celeba.steps, celeba.tau, celeba.scales, celeba.l1, celeba.perceptual) == (
        200,
        60,
        (8, 10, 15),
        0.05,
        30,
    )
    assert (celeba.dilation, celeba.threshold) == (5, 0.15)
    assert (medical.steps, medical.tau, medical.mask_from, medical.strength, medical.l1) == (
        400,
        160,
        80,
        40,
        200,
    )
    assert (medical.dilation, medical.threshold, medical.scales) == (21, 0.15, (1,))


def test_features_are_asked_for_only_when_they_are_used() -> None:
    settings = tiny.small("fastdime", perceptual=30.0)
    with pytest.raises(InputError, match="features: expected a feature network"):
        Explainer(tiny.denoiser(), tiny.classifier(), settings)(tiny.images())
    Explainer(tiny.denoiser(), tiny.classifier(), settings, features=torch.sin)(tiny.images())


def attempts(keep: str, results: list[float]) -> Counterfactuals:
    """Run a ladder whose attempts paint the image with given values; the log-odds is the mean."""

    class Mean:
        def logits(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            return x.mean((1, 2, 3))[:, None]

    x = torch.full((1, 1, 4, 4), -0.8)
    settings = tiny.small("fastdime-nomask", keep=keep, scales=list(range(1, len(results) + 1)))
    problem = Problem(x, torch.tensor([1]), tiny.denoiser(), Mean(), SeededNoise(0, ["a"]))
    values = iter(results)

    def paint(problem: Problem, *_: object) -> Edit:
        return Edit(torch.full_like(problem.x, next(values)), torch.ones(1, 1, 4, 4, dtype=torch.bool))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastdime.counterfactuals.ladder.run", paint)
        return climb(problem, settings)


@pytest.mark.parametrize(
    ("keep", "results", "kept"),
    [
        ("best", [-0.5, -0.1, -0.3], 2),
        ("last", [-0.5, -0.1, -0.3], 3),
        ("best", [-0.9, -0.95, -0.99], 1),
        ("best", [-0.5, 0.1, 0.9], 2),
        ("best", [float("nan"), -0.5, float("inf")], 2),
        ("last", [-0.5, float("nan"), -0.9], 3),
        ("best", [float("nan"), -0.95, float("nan")], 2),
    ],
)
def test_which_attempt_is_kept(keep: str, results: list[float], kept: int) -> None:
    result = attempts(keep, results)
    assert result.scale.item() == kept
    assert abs(result.x_cf.mean().item() - results[kept - 1]) < 0.01
    assert not result.diverged.any()


def test_an_attempt_that_diverged_leaves_the_input() -> None:
    result = attempts("best", [float("nan")] * 3)
    assert abs(result.x_cf.mean().item() + 0.8) < 1e-6
    assert result.diverged.all()
    assert not result.valid.any()
    assert not result.mask.any()
    assert torch.equal(result.p_after, result.p_before)


def test_validity_may_be_judged_before_rounding_for_the_published_presets() -> None:
    x = torch.zeros(1, 1, 2, 2)
    problem = Problem(x, torch.tensor([1]), tiny.denoiser(), tiny.classifier(), SeededNoise(0, ["a"]))
    edit = Edit(torch.full_like(x, 1.7), torch.ones(1, 1, 2, 2, dtype=torch.bool))
    saved, judged, _ = settle(problem, settings_for("fastdime", "celeba"), edit)
    assert saved.max() == 1
    assert judged.max() > 1.69
    saved, judged, _ = settle(problem, settings_for("fastdime"), edit)
    assert torch.equal(saved, judged)


@pytest.mark.parametrize("name", ["l1", "l2", "strength", "scales"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_weights_are_finite(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"setting of fastdime: {name}"):
        settings_for("fastdime", **{name: [value] if name == "scales" else value})


def test_the_schedules_of_ace() -> None:
    x = torch.zeros(1, 1, 2, 2)
    made = {
        name: settings_for("ace-l1", iterations=6, distance_schedule=name)
        for name in ("none", "step", "linear")
    }
    shares = {
        name: [distance_gradient(settings, x + 0.1, x, i).mean().item() / 0.0005 for i in range(6)]
        for name, settings in made.items()
    }
    assert shares["none"] == pytest.approx([1.0] * 6)
    assert shares["step"] == pytest.approx([0.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    assert shares["linear"] == pytest.approx([(i + 1) / 6 for i in range(6)])
