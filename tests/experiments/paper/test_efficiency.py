"""What methods cost: measured in turn, beside the paper, and kept."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastdime.audit.pictures import unseen
from fastdime.bundles import load_bundle
from fastdime.counterfactuals.methods import cost
from fastdime.errors import InputError
from fastdime.experiments.paper import efficiency as module
from fastdime.experiments.paper.catalogue import EFFICIENCY
from fastdime.experiments.paper.efficiency import run_efficiency, same_chain
from fastdime.experiments.paper.experiment import Plan, Source
from fastdime.experiments.paper.variants import Variant
from fastdime.experiments.speed import Contest
from support.shortcuts import World, make_world

PHANTOM = "chest-drain"
PAIR = replace(
    EFFICIENCY,
    variants=(Variant("fastdime", "fastdime"), Variant("fastdime-null", "fastdime-null")),
    sizes={"small": {"n": 4, "n_dime": 2, "chain": None}},
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), 6)


def plan_of(world: World, out: Path, **changes: Any) -> Plan:
    source = Source("celeba", world.table, str(world.bundle), "sick", "mark")
    return Plan("small", (source,), out, **changes)


@pytest.mark.parametrize(
    ("published", "tau"), [(None, 30), (EFFICIENCY.size("small")["chain"], 60)], ids=["own", "published"]
)
def test_all_methods_of_the_bundle_have_the_same_tau(published: dict[str, int] | None, tau: int) -> None:
    """In chest-drain, -2+ is tuned to start lower than the others."""
    bundle = load_bundle(PHANTOM)
    methods = [variant.method for variant in EFFICIENCY.variants]
    chain = same_chain(bundle.info, methods, published)
    assert chain.keys() == set(methods) - {"ace-l1", "ace-l2", "maskdime", "turbo"}
    contest = Contest(PHANTOM, methods, config=chain)
    calls = {method: cost(contest.settings(bundle, method))[0] for method in methods}
    assert calls["fastdime"] == calls["fastdime-nomask"] == calls["gmd-nomask"] == tau
    assert calls["fastdime-2"] == calls["fastdime-2+"] == 2 * tau
    assert calls["dime"] == tau + tau * (tau + 1) // 2
    assert calls["dime"] / calls["fastdime"] > 16


def test_the_published_chain_begins_with_drawn_noise_and_is_run_once() -> None:
    """The bundle of faces inverts, which costs as many denoiser calls again, and has two strengths."""
    chain = same_chain(load_bundle("face-smile").info, ["fastdime"], {"steps": 200, "tau": 60})["fastdime"]
    settings = Contest("face-smile", ["fastdime"], config={"fastdime": chain}).settings(
        load_bundle("face-smile"), "fastdime"
    )
    assert cost(settings)[0] == 60
    assert len(settings.scales) == 1


def test_a_table_of_a_user(world: World, tmp_path: Path) -> None:
    outcome = run_efficiency(PAIR, plan_of(world, tmp_path), unseen)
    first, second = outcome.rows
    assert (first["source"], first["row"], first["n"], first["complexity"]) == (
        "celeba",
        "fastdime",
        4,
        "O(T)",
    )
    assert first["seconds_per_batch"] == pytest.approx(5 * first["seconds_per_image"], abs=1e-3)
    assert first["total_seconds"] == round(1000 * first["seconds_per_image"])
    assert (first["paper_seconds_per_batch"], first["paper_total_seconds"]) == (13.6, 2755)
    assert first["paper_ratio_to_dime"] == 15.9  # 12:10:08 over 45:55
    assert (first["ratio_to_fastdime"], first["ratio_to_dime"]) == (1, None)
    assert second["denoiser_calls"] > first["denoiser_calls"] >= 3
    assert not any(name.startswith("paper_") for name in second)
    assert {"complexity", "denoiser_calls", "ratio_to_dime"} <= set(outcome.columns)


def test_what_was_measured_is_kept(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_efficiency(PAIR, plan_of(world, tmp_path), unseen)
    assert len(json.loads((tmp_path / "celeba.json").read_text())["rows"]) == 2
    monkeypatch.setattr(module, "race", None)
    assert run_efficiency(PAIR, plan_of(world, tmp_path), unseen).rows == found.rows
    for other in ({"n": 2}, {"seed": 1}):
        with pytest.raises(
            InputError, match=r"celeba.json: .* the same command measured, got another --seed"
        ):
            run_efficiency(PAIR, plan_of(world, tmp_path, **other), unseen)


def test_memory_is_that_of_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "peak_memory", lambda bundle, phantom, entry: 400.0 + len(entry.method))
    few = replace(
        PAIR, variants=(Variant("turbo", "turbo"),), sizes={"small": {"n": 2, "n_dime": 2, "chain": None}}
    )
    plan = Plan("small", (Source(PHANTOM, None, PHANTOM),), tmp_path)
    (row,) = run_efficiency(few, plan, unseen).rows
    assert (row["peak_memory_mb"], row["complexity"], row["n"]) == (405.0, "O(1)", 2)


def test_memory_with_a_bundle_of_another_name(tmp_path: Path) -> None:
    """The process that is measured draws the phantom, whatever the bundle is called."""
    own = tmp_path / "own"
    shutil.copytree(load_bundle(PHANTOM).folder, own)
    info = json.loads((own / "bundle.json").read_text())
    (own / "bundle.json").write_text(json.dumps(info | {"name": "mine"}))
    few = replace(PAIR, variants=(Variant("turbo-xs", "turbo-xs"),))
    plan = Plan("small", (Source(PHANTOM, None, str(own)),), tmp_path, n=2)
    (row,) = run_efficiency(few, plan, unseen).rows
    assert row["peak_memory_mb"] > 50


@pytest.mark.parametrize(
    ("n", "sentence"),
    [
        (3, "--n: expected an even number of images >= 2, got 3"),
        (8, "expected 4 images with mark = 1, got 3; give a smaller --n"),
    ],
)
def test_what_is_refused(n: int, sentence: str, world: World, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        run_efficiency(PAIR, plan_of(world, tmp_path, n=n), unseen)
    assert not list(tmp_path.iterdir())
