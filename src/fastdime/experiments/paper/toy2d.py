"""The paper's example in the plane: DiME, GMD and FastDiME bring a point of class B to class A.

Denoiser, classifier and the gradient that all three approximate are exact: nothing but the methods differs.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fastdime.counterfactuals.loop import chain_of, guided
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Event, Watch, ignore
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.sampling import step_down
from fastdime.diffusion.schedule import at, q_sample
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Row
from fastdime.experiments.paper.toy2d_figure import Lane, Scene, draw_figure
from fastdime.experiments.paper.toy2d_world import (
    BayesClassifier,
    Plane,
    as_images,
    as_points,
    exact_denoiser,
    example,
)
from fastdime.experiments.predictions import Show
from fastdime.files import write_atomically
from fastdime.noise import SeededNoise
from fastdime.sheets import write_sheet

EXACT = "exact"  # guidance by the true gradient, for comparison; no method of the library
METHODS = {  # name and where the gradient comes from
    "dime": ("DiME", "gradient at a point generated anew in each step"),
    "gmd-nomask": ("GMD", "gradient at the denoised point, through the denoiser"),
    "fastdime-nomask": ("FastDiME", "gradient at the denoised point"),
    EXACT: ("exact gradient", "gradient of log p(A | x_t)"),
}
START = (-0.6, -0.5)  # the point of class B that is explained
RUNS = 100
SCALE = 1.0  # with the exact gradient of the log-probability, this strength samples class A
# The chain of the CelebA program; only the class pulls, and the plane has no edge to clip at.
CHOICES: dict[str, Any] = {
    "steps": 200,
    "tau": 60,
    "class_loss": "log-probability",
    "l1": 0.0,
    "clip_denoised": False,
}
COLUMNS = (
    "method",
    "runs",
    "final_distance",
    "mean_distance",
    "cosine",
    "steadiness",
    "detour",
    "denoiser_calls",
    "gradient_calls",
    "seconds",
)
Steps = Float[Tensor, "steps runs 2"]


@dataclass(frozen=True)
class Walk:
    """All runs of one method, side by side.

    Attributes:
        levels: of the steps, from the noisiest.
        states: x_t as each step finds it, and the end.
        denoised: the clean point that the denoiser expects in each step.
        pulls: what moves the state in each step: minus the gradient of the class loss at x_t.
        exact: the gradient of log p(class A | x_t) at the same states.
    """

    levels: tuple[int, ...]
    states: Steps
    denoised: Steps
    pulls: Steps
    exact: Steps
    denoiser_calls: int
    gradient_calls: int
    seconds: float

    @property
    def end(self) -> Float[Tensor, "runs 2"]:
        """Where each run ends."""
        return self.states[-1]

    def cosines(self) -> Float[Tensor, "steps runs"]:
        """Agreement of the pull with the exact gradient: 1 where it points the same way."""
        return _cosine(self.pulls, self.exact)

    def steadiness(self) -> Float[Tensor, "less runs"]:
        """Agreement of the pull with that of the step before."""
        return _cosine(self.pulls[1:], self.pulls[:-1])

    def detour(self) -> Float[Tensor, " runs"]:
        """Length of the way, in straight lines from its start to its end."""
        way = self.states.diff(dim=0).norm(dim=2).sum(0)
        times: Tensor = way / (self.states[-1] - self.states[0]).norm(dim=1)
        return times


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    # Not torch's own, which takes a pull of a surely decided step, far below 1e-8, for no direction at all.
    return (_unit(one) * _unit(other)).sum(-1)


def _unit(vectors: Tensor) -> Tensor:
    """Give vectors the length 1; those of length 0 stay so."""
    tiny = torch.finfo(vectors.dtype).tiny
    large = vectors / vectors.abs().amax(-1, keepdim=True).clamp_min(tiny)  # whose squares do not vanish
    unit: Tensor = large / large.norm(dim=-1, keepdim=True).clamp_min(tiny)
    return unit


def run_toy2d(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Walk from one point of class B with each method and with the exact gradient; on the processor.

    Writes toy2d.png, and paths.json with the way of one run and the means over all runs.

    Args:
        show: opens a progress display of something: `fastdime.terminal.progress_of`.
    """
    runs = plan.n or int(experiment.size(plan.scale).get("runs", RUNS))
    plane = example()
    with show("steps") as progress:
        walks = walk_all(plane, runs, plan.seed, progress)
    plan.out.mkdir(parents=True, exist_ok=True)
    scene = Scene(plane, START, _floor(plane), runs)
    lanes = {method: _lane(plane, method, walk) for method, walk in walks.items()}
    picture = write_sheet(plan.out / "toy2d.png", draw_figure(scene, list(lanes.values())))
    _write_paths(plan.out / "paths.json", lanes, runs, plan.seed)
    rows = [_row(plane, method, walk) for method, walk in walks.items()]
    return Outcome(rows, COLUMNS, (picture,), _notes(scene, plan.seed))


def walk_all(
    plane: Plane, runs: int, seed: int = 0, progress: Callable[[float, int], None] = lambda done, of: None
) -> dict[str, Walk]:
    """Walk with every method, with the same noise."""
    walks: dict[str, Walk] = {}
    for number, method in enumerate(METHODS):
        walk_with(plane, method, 1, seed, tau=2)  # the first call of anything is slower
        tell = partial(_tell, progress, number)
        walks[method] = walk_with(plane, method, runs, seed, watch=tell)
    return walks


def _tell(progress: Callable[[float, int], None], number: int, event: Event) -> None:
    steps = int(CHOICES["tau"])
    progress(number * steps + event.index + 1, len(METHODS) * steps)


def walk_with(
    plane: Plane, method: str, runs: int, seed: int = 0, *, watch: Watch = ignore, **changes: Any
) -> Walk:
    """Walk with one method, with as many draws of the noise as there are runs."""
    settings = _settings(method, **changes)
    problem = problem_of(plane, runs, seed)
    events: list[Event] = []

    def see(event: Event) -> None:
        events.append(event)
        watch(event)

    began = time.perf_counter()
    with torch.no_grad():
        if method == EXACT:
            _guided_exactly(problem, plane, settings, see)
        else:
            guided(problem, settings, SCALE, see)
    return _walk(plane, problem, settings, events, time.perf_counter() - began)


def _settings(method: str, **changes: Any) -> GuidedSettings:
    # The exact gradient is taken at x_t itself, so what the settings say about gradients does not matter.
    found = settings_for("fastdime-nomask" if method == EXACT else method, **CHOICES | changes)
    assert isinstance(found, GuidedSettings)
    return found


def problem_of(plane: Plane, runs: int, seed: int = 0) -> Problem:
    """Ask for class A from the start; a run is an image with noise of its own.

    In double precision, because the gradient of a log-probability near 0 is small, but has a direction.
    """
    x = as_images(torch.tensor([START] * runs, dtype=torch.float64))
    noise = SeededNoise(seed, [str(run) for run in range(runs)])
    target = torch.ones(runs, dtype=torch.int64)
    return Problem(x, target, exact_denoiser(plane), BayesClassifier(plane), noise)


def _guided_exactly(problem: Problem, plane: Plane, settings: GuidedSettings, watch: Watch) -> None:
    """Do as the guided loop does, with the same noise, but with the exact gradient at x_t."""
    chain, noise = chain_of(problem.counted, settings), problem.part("pass", 1)
    x_t = q_sample(chain.schedule, problem.x, settings.tau - 1, problem.noise.draw(problem.x, "start"))
    for index, t in enumerate(range(settings.tau - 1, -1, -1)):
        problem.count_gradient()
        pull = as_images(plane.pull(as_points(x_t), at(chain.schedule.alpha_bar, t, x_t)))
        posterior = chain.posterior(x_t, t, clip=False)
        mean = posterior.mean + SCALE * posterior.variance * pull
        x_next = step_down(replace(posterior, mean=mean), t, noise)
        x0_hat = posterior.x0_hat
        watch(Event(index, t, x_t, x0_hat, None, x0_hat, -pull, None, x_next, x0_hat))
        x_t = x_next


def _walk(
    plane: Plane, problem: Problem, settings: GuidedSettings, events: list[Event], seconds: float
) -> Walk:
    chain = chain_of(problem.denoiser, settings)
    states = [as_points(event.x_t) for event in events]
    through = settings.gradient == "through"
    pulls = [_at_state(chain, event) if through else event.class_gradient for event in events]
    alpha_bars = [at(chain.schedule.alpha_bar, event.t, problem.x) for event in events]
    return Walk(
        levels=tuple(event.t for event in events),
        states=torch.stack([*states, as_points(events[-1].x_next)]),
        denoised=torch.stack([as_points(event.x0_hat) for event in events]),
        pulls=torch.stack([-as_points(pull) for pull in pulls if pull is not None]),
        exact=torch.stack([plane.pull(*here) for here in zip(states, alpha_bars, strict=True)]),
        denoiser_calls=problem.meter.denoiser[0],
        gradient_calls=problem.meter.gradient[0],
        seconds=seconds,
    )


def _at_state(chain: Denoiser, event: Event) -> Tensor:
    """Take the gradient that an event tells, at the clean point, back to x_t: so GMD uses it."""
    x_t = event.x_t.clone().requires_grad_()
    with torch.enable_grad():
        x0_hat = chain.posterior(x_t, event.t, clip=False).x0_hat
    return torch.autograd.grad(x0_hat, x_t, event.class_gradient)[0]


def _row(plane: Plane, method: str, walk: Walk) -> Row:
    numbers = {
        "final_distance": plane.distance(walk.end),
        "mean_distance": _distances(plane, walk.states[1:]),
        "mean_distance_denoised": _distances(plane, walk.denoised),
        "cosine": walk.cosines(),
        "steadiness": walk.steadiness(),
        "detour": walk.detour(),
        "arrived": (plane.log_odds(walk.end) > 0).double(),
    }
    return {
        "method": method,
        "runs": walk.states.shape[1],
        **{name: round(float(values.mean()), 3) for name, values in numbers.items()},
        "denoiser_calls": walk.denoiser_calls,
        "gradient_calls": walk.gradient_calls,
        "seconds": round(walk.seconds, 2),
    }


def _distances(plane: Plane, points: Steps) -> Float[Tensor, " steps"]:
    """Distance to class A in each step, averaged over the runs."""
    return torch.stack([plane.distance(step).mean() for step in points])


def _lane(plane: Plane, method: str, walk: Walk) -> Lane:
    # The run with the least start noise, which is the same for all methods: most others begin far away.
    run = int((walk.states[0] - walk.states.new_tensor(START)).norm(dim=1).argmin())
    return Lane(
        *METHODS[method],
        path=walk.states[:, run].tolist(),
        pulls=_unit(walk.pulls[:, run]).tolist(),
        exact=_unit(walk.exact[:, run]).tolist(),
        distance=_distances(plane, walk.states).tolist(),
        distance_denoised=_distances(plane, walk.denoised).tolist(),
        cosine=walk.cosines().mean(1).tolist(),
        denoiser_calls=walk.denoiser_calls,
    )


def _write_paths(file: Path, lanes: dict[str, Lane], runs: int, seed: int) -> None:
    drawn = {method: _rounded(asdict(lane)) for method, lane in lanes.items()}
    world = {"start": START, "runs": runs, "seed": seed, "settings": CHOICES, "scale": SCALE}
    write_atomically(file, (json.dumps(world | {"methods": drawn}, indent=1) + "\n").encode())


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def _notes(scene: Scene, seed: int) -> tuple[str, ...]:
    by_chance = scene.plane.log_odds(_unguided(scene.plane, scene.runs, seed)) > 0
    return (
        "distance: to the nearest centre of class A; mean_distance: of the noisy state x_t over all steps "
        f"(mean_distance_denoised: of its clean estimate). Points of class A itself have {scene.floor:.3f}.",
        "cosine: between the gradient that moves x_t and the exact gradient of log p(A | x_t) at the same "
        "state; steadiness: between the gradients of one step and the next; detour: length of the way of x_t "
        "over the straight line.",
        "exact: guidance by that exact gradient. "
        f"Without any guidance {by_chance.double().mean():.0%} of the runs end in class A. "
        "The picture shows the run whose start has the least noise; curves and rows are means over all runs.",
        "seconds are for all runs together. A formula in the plane costs next to nothing, so they are mostly "
        "bookkeeping and noise: the calls say what a network would cost.",
    )


def _unguided(plane: Plane, runs: int, seed: int) -> Float[Tensor, "runs 2"]:
    with torch.no_grad():
        return as_points(guided(problem_of(plane, runs, seed), _settings(EXACT), 0.0).x_cf)


def _floor(plane: Plane) -> float:
    """Return the mean distance of points that are of class A."""
    centres, spreads = plane.centres[plane.wanted], plane.spreads[plane.wanted]
    noise = SeededNoise(0, ["class A"]).draw(centres.new_zeros(1, 4000, len(centres), 2), "points")[0]
    return float(plane.distance((centres + spreads[:, None] * noise).flatten(0, 1)).mean())
