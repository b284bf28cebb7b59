"""How fast methods are beside each other, and what their counterfactuals are worth, in one run."""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fastdime.bundles import Bundle, load_bundle
from fastdime.configs import read_json
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import METHODS, PRESETS, cost, settings_for
from fastdime.counterfactuals.settings import GuidedSettings, Settings
from fastdime.errors import InputError, expected, unknown
from fastdime.experiments.memory import own_peak, peak_of
from fastdime.experiments.truth import DIRECTIONS, Direction, Judges, Pairs, Progress, Row, pairs, score
from fastdime.types import Counterfactuals

SUBJECTS = 2  # of a batch; each is shown with the shortcut, to remove it, and without, to add it
BATCH = SUBJECTS * len(DIRECTIONS)
WARM = 3  # levels that are enough to load and allocate everything
REFERENCES = ("dime", "fastdime")  # whose time over that of each method is told
Config = Mapping[str, Mapping[str, Any]]
Drawn = Mapping[Direction, Pairs]
Tick = Callable[[int, int], None]

# Best by `tune.loss` of a sweep with FastDiME on eight pilot subjects of chest-pacemaker, in both directions;
# it is in docs/results/speed-sweep.json. From strength 10 on the guide is fooled and the shortcut stays.
MEDICAL = {"strength": 3.0, "tau": 240, "mask_from": 120, "dilation": 21}
GUIDED = [name for name, method in METHODS.items() if method.program is GuidedSettings]
# What a preset needs changed to work with the networks of the bundles: published strengths fit the published
# networks.
FITTED: dict[str, dict[str, dict[str, Any]]] = {
    # DiME is too slow to sweep or to start higher: it has FastDiME's best strength at the published start.
    "medical": {**dict.fromkeys(GUIDED, MEDICAL), "dime": {"strength": 5.0}},
    # No bundle comes with features for the perceptual loss.
    "celeba": {name: {"perceptual": 0.0} for name in GUIDED},
}
# Methods that a published program does not have: they keep the settings of the preset "default".
ABSENT: dict[str, tuple[str, ...]] = {"medical": ("maskdime",)}


@dataclass(frozen=True)
class Contest:
    """What is measured.

    Attributes:
        n: images, half of them to remove the shortcut from and half to add it to.
        n_dime: images of a method whose cost is quadratic.
        config: settings to change, by method.
        memory: also run each method in a process of its own, for its peak memory.
    """

    phantom: str
    methods: Sequence[str]
    preset: str = "default"
    n: int = 32
    n_dime: int = 4
    config: Config = field(default_factory=dict)
    memory: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        for name, value in (("n", self.n), ("n-dime", self.n_dime)):
            if value < 2 or value % 2:
                raise InputError(expected(f"--{name}", "an even number of images >= 2", value))
        for name in (*self.methods, *self.config):
            if name not in METHODS:
                raise InputError(unknown("method", name, METHODS))
        if self.preset not in PRESETS:
            raise InputError(unknown("preset", self.preset, PRESETS))
        if len(set(self.methods)) < len(self.methods):
            raise InputError(expected("--methods", "each method once", ",".join(self.methods)))

    def settings(self, bundle: Bundle, method: str) -> Settings:
        """Return the settings of a method: those of the preset that fit the bundle, or the bundle's own."""
        changes = self.config.get(method, {})
        published = PRESETS[self.preset].get(METHODS[method].program)
        if not published or method in ABSENT.get(self.preset, ()):
            return Explainer.from_bundle(bundle, method, **changes).resolved
        fitting = FITTED.get(self.preset, {}).get(method, {})
        return settings_for(method, self.preset, **{**fitting, **changes})


@dataclass
class Entry:
    """A method on its way through its images."""

    method: str
    explainer: Explainer
    n: int
    seconds: float = 0.0
    results: list[Counterfactuals] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        """How it is set."""
        return self.explainer.resolved

    @property
    def work(self) -> int:
        """Denoiser calls of one attempt on one image: about what it will take."""
        return cost(self.settings)[0]

    def run(self, drawn: Drawn, subjects: range, tick: Tick | None = None) -> None:
        """Explain some subjects in both directions, and keep result and time."""
        began = perf_counter()
        result = _explain(self.explainer, drawn, subjects, tick)
        self.seconds += perf_counter() - began
        self.results.append(result)

    def made(self, direction: Direction) -> Tensor:
        """Return its counterfactuals of one direction."""
        place = DIRECTIONS.index(direction)
        return torch.cat([result.x_cf.chunk(len(DIRECTIONS))[place] for result in self.results])

    def calls(self, name: str) -> float:
        """Return how many calls of a network an image took, on average."""
        return float(torch.cat([getattr(result, name) for result in self.results]).float().mean())

    def costs(self) -> Row:
        """Return what an image took; its memory is measured apart."""
        return {
            "method": self.method,
            "n": self.n,
            "seconds_per_image": self.seconds / self.n,
            "denoiser_calls": self.calls("denoiser_calls"),
            "gradient_calls": self.calls("gradient_calls"),
            "peak_memory_mb": None,
        }


def _explain(
    explainer: Explainer, drawn: Drawn, subjects: range, tick: Tick | None = None
) -> Counterfactuals:
    part = slice(subjects.start, subjects.stop)
    x = torch.cat([drawn[way].x[part] for way in DIRECTIONS])
    target = torch.tensor([drawn[way].target for way in DIRECTIONS]).repeat_interleave(len(subjects))
    ids = [f"{way}-{subject}" for way in DIRECTIONS for subject in subjects]
    return explainer(x, target, ids=ids, tick=tick)


def speed(contest: Contest, progress: Progress | None = None) -> list[Row]:
    """Run methods on the same images of a phantom in turn; returns time, cost and scores of each."""
    bundle = load_bundle(contest.phantom)
    entries = [_entry(contest, bundle, method) for method in contest.methods]
    drawn: Drawn = {way: pairs(bundle.name, contest.n // 2, way) for way in DIRECTIONS}
    for entry in entries:
        warm_up(entry, drawn)
    work = Work(entries, BATCH if contest.memory else 0, progress)
    race(entries, drawn, work)
    judges = Judges.of(bundle)
    rows = [row(entry, drawn, judges) for entry in entries]
    if contest.memory:
        for entry, told in zip(entries, rows, strict=True):
            told["peak_memory_mb"] = peak_memory(bundle, bundle.name, entry)
            work.finish(entry, BATCH)
    return with_ratios(rows)


def _entry(contest: Contest, bundle: Bundle, method: str) -> Entry:
    settings = contest.settings(bundle, method)
    n = min(contest.n, contest.n_dime) if quadratic(settings) else contest.n
    return Entry(method, replace(Explainer.from_bundle(bundle, method), settings=settings), n)


def quadratic(settings: Settings) -> bool:
    """Say whether each step of a method runs a chain of its own."""
    return isinstance(settings, GuidedSettings) and settings.gradient == "nested"


def warm_up(entry: Entry, drawn: Drawn) -> None:
    """Let a method work once, in few steps, so that nothing is loaded or allocated later."""
    subjects = range(min(SUBJECTS, entry.n // 2))
    _explain(replace(entry.explainer, settings=shortened(entry.settings)), drawn, subjects)


def shortened(settings: Settings) -> Settings:
    """Return settings of the same work with a short chain, where there is one."""
    if not isinstance(settings, GuidedSettings):
        return settings
    tau = min(settings.tau, settings.last_level + WARM)
    return settings.model_copy(update={"tau": tau, "mask_from": None, "scales": settings.scales[:1]})


class Work:
    """Progress in denoiser calls: an image of one method costs as much as many of another."""

    def __init__(self, entries: Sequence[Entry], more: int, progress: Progress | None) -> None:
        """Foresee one attempt on each image, and on some more for the memory."""
        self.all = sum(entry.work * (entry.n + more) for entry in entries)
        self.done = 0.0
        self.progress = progress
        if progress is not None:
            progress(0, self.all)

    def ticks(self, entry: Entry, images: int) -> Tick:
        """Return what a method is to call after each step of a batch."""
        furthest = 0.0  # a second attempt begins anew, and is not foreseen

        def tick(step: int, of: int) -> None:
            nonlocal furthest
            left = 1 - step / of
            furthest = max(furthest, 1 - left * left if quadratic(entry.settings) else 1 - left)
            self._tell(self.done + furthest * entry.work * images)

        return tick

    def finish(self, entry: Entry, images: int) -> None:
        """Count images as done."""
        self.done += entry.work * images
        self._tell(self.done)

    def _tell(self, done: float) -> None:
        if self.progress is not None:
            self.progress(done, self.all)


def race(entries: Sequence[Entry], drawn: Drawn, work: Work) -> None:
    """Run every method on each batch in turn, so that a busy machine hits all alike."""
    for subjects in batches(max(entry.n for entry in entries) // 2):
        for entry in entries:
            own = range(subjects.start, min(subjects.stop, entry.n // 2))
            if own:
                images = len(own) * len(DIRECTIONS)
                entry.run(drawn, own, work.ticks(entry, images))
                work.finish(entry, images)


def batches(subjects: int) -> Iterator[range]:
    """Yield the subjects of each batch.

    >>> list(batches(5))
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    for first in range(0, subjects, SUBJECTS):
        yield range(first, min(first + SUBJECTS, subjects))


def row(entry: Entry, drawn: Drawn, judges: Judges) -> Row:
    """Score a method on the images it had; there are as many removals as additions."""
    remove, add = (score(drawn[way].first(entry.n // 2), entry.made(way), judges) for way in DIRECTIONS)
    both = {name: (remove[name] + add[name]) / 2 for name in remove}
    return {
        **entry.costs(),
        "guide_flip": both["guide_flip"],
        "oracle_flip": remove["oracle_flip"],
        "oracle_flip_add": add["oracle_flip"],
        "complete_flip_add": add["complete_flip"],
        "region_error_ratio": remove["region_error_ratio"],
        "full_error_ratio": remove["full_error_ratio"],
        "full_error_ratio_add": add["full_error_ratio"],
        "outside_change": remove["outside_change"],
        "outside_change_add": add["outside_change"],
        "task_change": both["task_change"],
        "l1": both["l1"],
    }


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Add how many times faster each method is than those it is compared with, and round all numbers."""
    seconds = {one["method"]: one["seconds_per_image"] for one in rows}

    def ratio(name: str, one: Row) -> float | None:
        return seconds[name] / one["seconds_per_image"] if name in seconds else None

    whole = [{**one, **{f"ratio_to_{name}": ratio(name, one) for name in REFERENCES}} for one in rows]
    return [{name: _rounded(value) for name, value in one.items()} for one in whole]


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def peak_memory(bundle: Bundle, phantom: str, entry: Entry) -> float:
    """Run a method on a batch of a phantom in a process of its own; returns its peak memory in MB."""
    # Memory does not grow with the steps, and quadratic cost is no reason to wait for minutes.
    settings = shortened(entry.settings) if quadratic(entry.settings) else entry.settings
    words = (
        "--bundle",
        str(bundle.folder),
        "--phantom",
        phantom,
        "--method",
        entry.method,
        "--settings",
        settings.model_dump_json(),
    )
    return peak_of("fastdime.experiments.speed", *words)


def _report_peak() -> None:
    parser = ArgumentParser(description="Run a method once and print the peak memory of the process in MB.")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--phantom", required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--settings", type=json.loads, required=True)
    given = parser.parse_args()
    bundle = load_bundle(given.bundle)
    drawn: Drawn = {way: pairs(given.phantom, SUBJECTS, way) for way in DIRECTIONS}
    settings = settings_for(given.method, **given.settings)
    explainer = replace(Explainer.from_bundle(bundle, given.method), settings=settings)
    _explain(explainer, drawn, range(SUBJECTS))
    print(own_peak())


def read_config(path: Path) -> Config:
    """Read settings to change, by method, from a JSON file."""
    content = read_json(path)
    for name, changes in content.items():
        if not isinstance(changes, dict):
            raise InputError(expected(f"{path}: {name}", "an object of settings", repr(changes)))
    return content


if __name__ == "__main__":
    _report_peak()
