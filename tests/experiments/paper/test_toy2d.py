import json
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from torch import Tensor

from fastdime.counterfactuals.loop import chain_of
from fastdime.diffusion.schedule import at
from fastdime.experiments.paper import toy2d
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Source
from fastdime.experiments.paper.toy2d_canvas import Canvas, Frame, dashed, round_numbers
from fastdime.experiments.paper.toy2d_figure import STYLES
from fastdime.experiments.paper.toy2d_world import (
    BayesClassifier,
    as_images,
    as_points,
    exact_denoiser,
    example,
)

PLANE = example()
POINTS = torch.tensor([[-0.7, -0.2], [0.0, 0.0], [0.4, 0.5], [1.2, -0.9]], dtype=torch.float64)
LEVELS = (0.15, 0.6, 0.95)  # alpha-bar


@cache
def grid() -> np.ndarray:
    """Places where clean points may lie, 1/100 apart."""
    axis = np.linspace(-2, 2, 401)
    return np.stack(np.meshgrid(axis, axis), 2).reshape(-1, 2)


@cache
def density(*, wanted: bool) -> np.ndarray:
    """Density of one class at the places, by scipy."""
    parts = zip(PLANE.centres.tolist(), PLANE.spreads.tolist(), PLANE.wanted.tolist(), strict=True)
    found = [multivariate_normal(c, s**2).pdf(grid()) for c, s, of_a in parts if of_a == wanted]
    return np.mean(found, axis=0)


def likelihood(x_t: Tensor, alpha_bar: float) -> np.ndarray:
    """Density of a noisy point, if each of the places was the clean one."""
    return multivariate_normal(x_t.numpy(), 1 - alpha_bar).pdf(alpha_bar**0.5 * grid())


def log_odds_by_sums(x_t: Tensor, alpha_bar: float) -> float:
    near = likelihood(x_t, alpha_bar)
    return float(np.log((density(wanted=True) * near).sum() / (density(wanted=False) * near).sum()))


def level(alpha_bar: float) -> Tensor:
    return torch.tensor(alpha_bar, dtype=torch.float64)


@pytest.mark.parametrize("alpha_bar", LEVELS)
def test_the_denoiser_is_the_mean_over_all_clean_points(alpha_bar: float) -> None:
    answers = PLANE.expected(POINTS, level(alpha_bar))
    for x_t, answer in zip(POINTS, answers, strict=True):
        weight = (density(wanted=True) + density(wanted=False)) * likelihood(x_t, alpha_bar)
        assert answer.numpy() == pytest.approx(weight @ grid() / weight.sum(), abs=1e-6)


@pytest.mark.parametrize("alpha_bar", LEVELS)
def test_log_odds_of_noisy_points_are_those_of_all_clean_points(alpha_bar: float) -> None:
    answers = PLANE.log_odds(POINTS, level(alpha_bar))
    for x_t, answer in zip(POINTS, answers, strict=True):
        assert float(answer) == pytest.approx(log_odds_by_sums(x_t, alpha_bar), abs=1e-6)


@pytest.mark.parametrize("alpha_bar", LEVELS)
def test_the_exact_pull_is_the_slope_of_the_log_probability(alpha_bar: float) -> None:
    small = 1e-4
    answers = PLANE.pull(POINTS, level(alpha_bar))
    for x_t, answer in zip(POINTS, answers, strict=True):
        for axis, step in enumerate(small * torch.eye(2, dtype=torch.float64)):
            ends = [log_odds_by_sums(x_t + sign * step, alpha_bar) for sign in (1, -1)]
            above, below = (-logsumexp([0, -odds]) for odds in ends)
            assert float(answer[axis]) == pytest.approx((above - below) / (2 * small), abs=1e-5)


def test_a_level_for_each_point_gives_the_same() -> None:
    levels = torch.tensor([LEVELS[0], LEVELS[1], LEVELS[2], LEVELS[1]], dtype=torch.float64)
    for formula in (PLANE.expected, PLANE.pull, PLANE.log_odds, PLANE.log_densities):
        together = formula(POINTS, levels[:, None])
        alone = torch.cat([formula(POINTS[i : i + 1], levels[i]) for i in range(4)])
        assert torch.allclose(together, alone, atol=1e-12)


def test_densities_are_those_of_the_mixture() -> None:
    both = (density(wanted=True) + density(wanted=False)) / 2
    found = PLANE.log_densities(torch.from_numpy(grid())).exp().sum(1)
    assert found.numpy() == pytest.approx(both, abs=1e-9)
    assert found.sum().item() / 100**2 == pytest.approx(1, abs=1e-6)


def test_the_classifier_is_of_bayes_and_knows_the_centres() -> None:
    logits = BayesClassifier(PLANE).logits(as_images(PLANE.centres), torch.zeros(4, dtype=torch.int64))
    assert ((logits[:, 0] > 0) == PLANE.wanted).all()
    places = torch.from_numpy(grid())
    chosen = (places.abs().amax(1) < 0.8).nonzero()[::97, 0]
    found = PLANE.log_odds(places[chosen])
    expected = np.log(density(wanted=True) / density(wanted=False))[chosen.numpy()]
    assert found.numpy() == pytest.approx(expected, abs=1e-9)


def test_distance_is_to_the_nearest_centre_of_class_a() -> None:
    assert PLANE.distance(PLANE.centres[PLANE.wanted]).tolist() == [0, 0]
    assert PLANE.distance(torch.tensor([[0.5, -0.6]], dtype=torch.float64)).item() == pytest.approx(0.4)


def test_the_library_gets_the_same_denoiser_on_a_shorter_chain() -> None:
    chain = exact_denoiser(PLANE).respaced(200)
    x0_hat = chain.posterior(as_images(POINTS), 59, clip=False).x0_hat
    expected = PLANE.expected(POINTS, at(chain.schedule.alpha_bar, 59, POINTS))
    assert torch.allclose(as_points(x0_hat), expected, atol=1e-12)


@pytest.mark.parametrize("method", list(toy2d.METHODS))
def test_pulls_are_what_moves_the_state(method: str) -> None:
    """Each step goes to the denoiser's mean, plus pull times variance, plus noise, and nothing else."""
    tau = 12
    walk = toy2d.walk_with(PLANE, method, 3, tau=tau)
    problem = toy2d.problem_of(PLANE, 3)
    chain = chain_of(problem.denoiser, toy2d._settings(method))
    noise = problem.part("pass", 1)
    assert walk.levels == tuple(range(tau - 1, -1, -1))
    for index, t in enumerate(walk.levels):
        posterior = chain.posterior(as_images(walk.states[index]), t, clip=False)
        expected = posterior.mean + posterior.variance * as_images(walk.pulls[index])
        if t:
            expected = expected + posterior.variance.sqrt() * noise.draw(posterior.mean, "step", t)
        assert torch.allclose(walk.states[index + 1], as_points(expected), atol=1e-9)


def test_the_exact_walk_pulls_exactly_and_the_others_agree_at_the_end() -> None:
    walks = {method: toy2d.walk_with(PLANE, method, 20) for method in ("exact", "fastdime-nomask")}
    assert torch.allclose(walks["exact"].cosines(), torch.ones(60, 20, dtype=torch.float64))
    cosines = walks["fastdime-nomask"].cosines()
    assert cosines[:10].mean() < 0.95
    assert cosines[-1].min() > 0.99


def test_all_methods_begin_at_the_same_place_and_end_in_class_a() -> None:
    walks = toy2d.walk_all(PLANE, 20)
    begin = PLANE.distance(torch.tensor([toy2d.START], dtype=torch.float64)).item()
    for walk in walks.values():
        assert torch.equal(walk.states[0], walks["dime"].states[0])
        assert PLANE.distance(walk.end).mean() < 0.3 < begin / 2
        assert (PLANE.log_odds(walk.end) > 0).double().mean() > 0.9
    by_chance = (PLANE.log_odds(toy2d._unguided(PLANE, 100, 0)) > 0).double().mean()
    assert 0.2 < by_chance < 0.6
    assert walks["fastdime-nomask"].steadiness().mean() > walks["dime"].steadiness().mean() + 0.03


def test_points_of_class_a_are_as_far_from_its_centres_as_gaussians_are() -> None:
    alone = (np.pi / 2) ** 0.5 * PLANE.spreads[PLANE.wanted].mean().item()  # mean of a Rayleigh distribution
    assert toy2d._floor(PLANE) == pytest.approx(alone, abs=0.01)


def test_tiny_vectors_have_a_direction() -> None:
    vectors = torch.tensor([[1e-200, 0.0], [0.0, 0.0]], dtype=torch.float64)
    other = torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert toy2d._cosine(vectors, other).tolist() == pytest.approx([0.5**0.5, 0])


def outcome(out: Path, *, seed: int = 0, told: list[tuple[float, int]] | None = None) -> Outcome:
    sizes = {"small": {"runs": 4}, "full": {}}
    experiment = Experiment("toy2d", "the example in the plane", "Figure 3", sizes)
    plan = Plan("small", (Source("face-smile", None, "face-smile"),), out, seed=seed)
    heard = [] if told is None else told
    return toy2d.run_toy2d(
        experiment, plan, lambda what: nullcontext(lambda done, of: heard.append((done, of)))
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, list[tuple[float, int]]]:
    out, told = tmp_path_factory.mktemp("toy2d") / "new", []
    return out, outcome(out, told=told), told


def test_the_table_has_a_row_for_each_method(found: tuple[Path, Outcome, list[tuple[float, int]]]) -> None:
    _, result, told = found
    rows = {row["method"]: row for row in result.rows}
    assert list(rows) == ["dime", "gmd-nomask", "fastdime-nomask", "exact"]
    assert all(set(result.columns) <= set(row) and row["runs"] == 4 for row in result.rows)
    assert [row["denoiser_calls"] for row in result.rows] == [60 + 60 * 61 // 2, 60, 60, 60]
    assert [row["gradient_calls"] for row in result.rows] == [60] * 4
    assert rows["dime"]["seconds"] > rows["fastdime-nomask"]["seconds"]
    assert rows["exact"]["cosine"] == 1
    assert told[-1] == (240, 240)
    assert any("class A itself" in note for note in result.notes)


def test_the_picture_shows_every_method(found: tuple[Path, Outcome, list[tuple[float, int]]]) -> None:
    out, result, _ = found
    assert result.pictures == (out / "toy2d.png",)
    assert result.pictures[0].stat().st_size < 500_000
    with Image.open(result.pictures[0]) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    for colour, _ in STYLES:
        paint = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == paint).all(2).sum() > 200
    assert (pixels == 255).all(2).mean() > 0.3


def test_the_same_seed_gives_the_same_files(
    found: tuple[Path, Outcome, list[tuple[float, int]]], tmp_path: Path
) -> None:
    out, result, _ = found
    again = outcome(tmp_path)
    for name in ("toy2d.png", "paths.json"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()
    for one, other in zip(result.rows, again.rows, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    other = toy2d.walk_with(PLANE, "fastdime-nomask", 4, seed=1)
    assert not torch.equal(other.end, toy2d.walk_with(PLANE, "fastdime-nomask", 4).end)


def test_paths_are_written_for_others_to_draw(found: tuple[Path, Outcome, list[tuple[float, int]]]) -> None:
    written = json.loads((found[0] / "paths.json").read_text(encoding="utf8"))
    assert (written["runs"], written["start"]) == (4, list(toy2d.START))
    for method in toy2d.METHODS:
        lane = written["methods"][method]
        assert np.shape(lane["path"]) == (61, 2)
        assert np.linalg.norm(lane["pulls"], axis=1) == pytest.approx(np.ones(60), abs=1e-3)
        assert len(lane["distance"]) == 61
        assert len(lane["cosine"]) == len(lane["distance_denoised"]) == 60


def test_frames_put_numbers_in_their_place() -> None:
    frame = Frame((10, 20), (100, 50), (0, 2), (-1, 1))
    assert frame.place(0, -1) == (10, 70)
    assert frame.places([[2, 1], [1, 0]]) == [(110, 20), (60, 45)]


def test_dashes_follow_the_line() -> None:
    strokes = list(dashed([(0, 0), (3, 0), (3, 4)], 4, 2))
    assert strokes == [[(0, 0), (3, 0), (3, 1)], [(3, 3), (3, 4)]]


@pytest.mark.parametrize(
    ("ends", "numbers"),
    [((0, 1.3), [0, 0.5, 1]), ((0.8, 1.02), [0.8, 0.9, 1]), ((0, 60), [0, 10, 20, 30, 40, 50, 60])],
)
def test_axes_have_round_numbers(ends: tuple[float, float], numbers: list[float]) -> None:
    assert round_numbers(*ends) == numbers


def test_an_arrow_points_where_it_should() -> None:
    canvas = Canvas(40, 20)
    canvas.arrow((5, 10), (35, 10), "#000000", 2)
    pixels = np.asarray(canvas.finished().convert("L"))
    heights = (pixels < 128).sum(0)
    assert heights[8] == 2  # the shaft
    assert heights[28] > heights[33] > 0  # the head, which narrows
    assert heights[37] == 0
