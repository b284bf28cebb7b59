"""The speed bench: methods in turn on the same images, and numbers that are those of these images."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fastdime.bundles import Bundle, load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import METHODS, cost, settings_for
from fastdime.counterfactuals.settings import GuidedSettings, Settings
from fastdime.experiments import speed as module
from fastdime.experiments.memory import own_peak
from fastdime.experiments.speed import Contest, Entry, Work, race, row, shortened, speed, warm_up, with_ratios
from fastdime.experiments.truth import DIRECTIONS, Judges, Pairs, pairs
from fastdime.experiments.tune import loss
from fastdime.types import Counterfactuals
from support.commands import complaint, fastdime_command, finish, start_python

PHANTOM = "chest-pacemaker"
SWEEP = Path(__file__).parents[2] / "docs" / "results" / "speed-sweep.json"
QUICK = {"steps": 20, "tau": 2, "scales": [8.0]}


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class StandIn:
    """An explainer that takes a known time and gives the exact answer to removals, and none to additions."""

    name: str
    price: float
    clock: Clock
    settings: Settings
    log: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def resolved(self) -> Settings:
        return self.settings

    def __call__(self, x: Tensor, target: Tensor, *, ids: list[str], tick: Any) -> Counterfactuals:
        self.clock.now += self.price * len(x)
        self.log.append((self.name, ids))
        if tick is not None:
            for step in (1, 2, 1, 2):  # two attempts
                tick(step, 2)
        assert target.tolist() == [int(name.startswith("add")) for name in ids]
        x_cf, calls = x.clone(), torch.arange(len(x))
        subjects = [int(name.split("-")[1]) for name in ids if name.startswith("remove")]
        x_cf[: len(subjects)] = drawn(6)["remove"].truth[subjects]
        none = torch.zeros(len(x))
        empty = dict.fromkeys(("p_before", "p_after", "scale", "mask"), none)
        flags = {name: none.bool() for name in ("valid", "diverged")}
        return Counterfactuals(
            x_cf=x_cf,
            predicted=target,
            target=target,
            denoiser_calls=calls,
            gradient_calls=2 * calls,
            **empty,
            **flags,
        )


def drawn(n: int) -> dict[str, Pairs]:
    return {way: pairs(PHANTOM, n, way) for way in DIRECTIONS}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(PHANTOM)


def entries(clock: Clock) -> tuple[list[Entry], list[tuple[str, list[str]]]]:
    log: list[tuple[str, list[str]]] = []
    plan = [("dime", 8.0, 2), ("fastdime", 2.0, 6), ("gmd", 0.5, 6)]
    made = [
        Entry(name, StandIn(name, price, clock, settings_for(name, tau=2), log), n)  # type: ignore[arg-type]
        for name, price, n in plan
    ]
    return made, log


def test_methods_take_turns_on_each_batch(clock: Clock) -> None:
    group, log = entries(clock)
    race(group, drawn(3), Work(group, 0, None))
    whole, rest = ["remove-0", "remove-1", "add-0", "add-1"], ["remove-2", "add-2"]
    assert log == [
        ("dime", ["remove-0", "add-0"]),
        ("fastdime", whole),
        ("gmd", whole),
        ("fastdime", rest),
        ("gmd", rest),
    ]


def test_time_and_scores_are_those_of_the_images(clock: Clock, bundle: Bundle) -> None:
    group, _ = entries(clock)
    images = drawn(3)
    race(group, images, Work(group, 0, None))
    dime, fastdime, gmd = with_ratios([row(entry, images, Judges.of(bundle)) for entry in group])
    assert [one["n"] for one in (dime, fastdime, gmd)] == [2, 6, 6]
    assert [one["seconds_per_image"] for one in (dime, fastdime, gmd)] == [8.0, 2.0, 0.5]
    assert [one["ratio_to_dime"] for one in (dime, fastdime, gmd)] == [1.0, 4.0, 16.0]
    assert [one["ratio_to_fastdime"] for one in (dime, fastdime, gmd)] == [0.25, 1.0, 4.0]
    # Four images with 0 to 3 calls, and two with 0 and 1.
    assert (gmd["denoiser_calls"], gmd["gradient_calls"]) == (round(7 / 6, 4), round(14 / 6, 4))
    assert (gmd["oracle_flip"], gmd["oracle_flip_add"], gmd["complete_flip_add"]) == (1.0, 0.0, 0.0)
    assert (gmd["full_error_ratio"], gmd["full_error_ratio_add"]) == (0.0, 1.0)
    assert (gmd["region_error_ratio"], gmd["outside_change"], gmd["outside_change_add"]) == (0.0, 0.0, 0.0)
    assert gmd["guide_flip"] == 0.5
    remove = images["remove"]
    assert gmd["l1"] == pytest.approx(float((remove.x - remove.truth).abs().mean()) / 4, abs=1e-4)


def test_progress_goes_forward_to_the_end(clock: Clock) -> None:
    group, _ = entries(clock)
    told: list[float] = []
    work = Work(group, 0, lambda done, of: told.append(done / of))
    race(group, drawn(3), work)
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 1)
    # Half of DiME's steps are three quarters of its calls.
    calls = [cost(entry.settings)[0] * entry.n for entry in group]
    assert told[1] == pytest.approx(0.75 * calls[0] / sum(calls))


def test_no_ratio_to_what_was_not_run() -> None:
    [one] = with_ratios([{"method": "gmd", "seconds_per_image": 0.123456}])
    assert (one["ratio_to_dime"], one["ratio_to_fastdime"]) == (None, None)
    assert one["seconds_per_image"] == 0.1235
    rows = with_ratios(
        [{"method": "dime", "seconds_per_image": 1.0}, {"method": "gmd", "seconds_per_image": 3e-5}]
    )
    assert rows[1]["ratio_to_dime"] == round(1 / 3e-5, 4)  # not of rounded numbers


def test_warming_up_is_short_and_counts_for_nothing(clock: Clock) -> None:
    settings = settings_for("dime", "medical")
    entry = Entry("dime", StandIn("dime", 1.0, clock, settings), 4)  # type: ignore[arg-type]
    warm_up(entry, drawn(2))
    assert clock.now > 0
    assert (entry.seconds, entry.results) == (0.0, [])
    short = shortened(settings)
    assert cost(short)[0] < 12 < 12_000 < cost(settings)[0]
    assert short.model_copy(update={"tau": 160, "mask_from": 80}) == settings
    ace = settings_for("ace-l1")
    assert shortened(ace) == ace


def test_settings_are_those_of_the_preset_or_the_bundle(bundle: Bundle) -> None:
    def settings(preset: str, method: str, **changes: Any) -> Any:
        return Contest(PHANTOM, [method], preset, config={method: changes}).settings(bundle, method)

    assert settings("default", "fastdime").tau == bundle.info.settings["fastdime"]["tau"]
    assert settings("default", "fastdime", tau=7).tau == 7
    for method in ("fastdime", "dime"):
        assert settings("medical", method) == settings_for(
            method, "medical", **module.FITTED["medical"][method]
        )
        assert settings("medical", method, strength=3.5).strength == 3.5
    assert cost(settings("medical", "dime"))[0] == 12_879
    for preset in ("default", "medical", "celeba"):  # no published program of MaskDiME runs longer
        assert cost(settings(preset, "maskdime")) == (60, 60)
    assert settings("medical", "maskdime") == settings_for("maskdime")
    for preset in ("default", "medical", "celeba"):  # which say nothing of it
        assert settings(preset, "turbo") == Explainer.from_bundle(bundle, "turbo").settings
    assert settings("celeba", "fastdime") == settings_for("fastdime", "celeba", perceptual=0)


def test_every_fitting_setting_is_known() -> None:
    for preset, methods in module.FITTED.items():
        for method, changes in methods.items():
            assert settings_for(method, preset, **changes)
            assert METHODS[method].program is GuidedSettings


def test_the_sweep_is_what_the_settings_come_from() -> None:
    rows = json.loads(SWEEP.read_text())["rows"]
    assert [one["loss"] for one in rows] == sorted(one["loss"] for one in rows)
    assert rows[0]["settings"] == module.MEDICAL
    for one in rows:
        assert loss(one) == pytest.approx(one["loss"], abs=1e-3)
    low = next(one["settings"] for one in rows if one["settings"]["tau"] == 160)
    assert module.FITTED["medical"]["dime"] == {"strength": low["strength"]}


def test_rows_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "quick.json"
    path.write_text(json.dumps({"dime": QUICK, "fastdime": QUICK}))
    words = ["bench", "speed", "--methods", "dime,fastdime", "--n", 4, "--n-dime", 2, "--config", path]
    done = fastdime_command(*words, "--no-memory", "--json")
    assert done.code == 0, done.err
    dime, fastdime = json.loads(done.out)["rows"]
    assert list(dime) == list(fastdime)
    assert [(one["method"], one["n"]) for one in (dime, fastdime)] == [("dime", 2), ("fastdime", 4)]
    assert (dime["denoiser_calls"], dime["gradient_calls"]) == (5.0, 2.0)
    assert (fastdime["denoiser_calls"], fastdime["gradient_calls"]) == (2.0, 2.0)
    assert dime["ratio_to_dime"] == fastdime["ratio_to_fastdime"] == 1.0
    assert dime["ratio_to_fastdime"] * fastdime["ratio_to_dime"] == pytest.approx(1, abs=0.01)
    assert dime["peak_memory_mb"] is None
    shown = fastdime_command(*words, "--no-memory").out.splitlines()
    assert re.split(r"\s{2,}", shown[0].strip()) == [name.replace("_", " ") for name in dime]


def test_memory_is_that_of_a_process_of_its_own() -> None:
    quick = {"fastdime": QUICK}
    told: list[float] = []
    [one] = speed(Contest(PHANTOM, ["fastdime"], n=2, config=quick), lambda done, of: told.append(done / of))
    assert 100 < one["peak_memory_mb"] < 4000
    assert told[-1] == 1


def test_a_small_child_of_a_large_process_is_small() -> None:
    child = "from fastdime.experiments.memory import own_peak; print(own_peak())"
    program = f"""
import subprocess, sys
held = b"x" * 400_000_000
print(subprocess.run([sys.executable, "-c", {child!r}], capture_output=True, text=True, check=True).stdout)
"""
    done = finish(start_python("-c", program))
    assert done.code == 0, done.err
    assert 5 < float(done.out) < 200
    assert own_peak() > 200  # this process has torch


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "fastdim"], "method: expected one of"),
        (["--methods", "fastdime,"], "method: expected one of"),
        (["--methods", "fastdime,fastdime"], "--methods: expected each method once"),
        (["--methods", "fastdime", "--n", "0"], "--n: expected an even number of images >= 2, got 0"),
        (["--methods", "fastdime", "--n", "3"], "--n: expected an even number of images >= 2, got 3"),
        (["--methods", "fastdime", "--n-dime", "0"], "--n-dime: expected an even number"),
        (["--methods", "fastdime", "--preset", "celebA"], "did you mean 'celeba'?"),
        (["--methods", "fastdime", "--phantom", "chest"], "bundle chest: expected a folder"),
        (["--methods", "fastdime", "--config", "nowhere.json"], "nowhere.json: expected a JSON file"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], message: str) -> None:
    assert message in complaint(fastdime_command("bench", "speed", *words))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"fastdim": {}}, "did you mean 'fastdime'?"),
        ({"fastdime": 3}, "fastdime: expected an object of settings, got 3"),
        ({"fastdime": {"taau": 3}}, "did you mean 'tau'?"),
    ],
)
def test_a_wrong_config_is_one_line(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    done = fastdime_command("bench", "speed", "--methods", "fastdime", "--config", path)
    assert message in complaint(done)
