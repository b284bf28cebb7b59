from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
import torch

from fastdime.audit.cells import Columns, Curation, Plan
from fastdime.audit.curate import curate
from fastdime.audit.models import open_audited
from fastdime.audit.opening import open_data
from fastdime.data import io
from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.ideal import ideal_observer
from fastdime.errors import CheckpointError, InputError
from fastdime.terminal import silence_of
from fastdime.validation.study import (
    Study,
    StudyPlan,
    check_bundle,
    columns_of,
    numbers,
    recipe_of,
    study,
    train_ids,
)
from support.audits import Plan as MadeUp
from support.audits import row
from support.shortcuts import World, quick_recipe

KS = (100.0, 50.0)


def plan_of(world: World, **changes: Any) -> StudyPlan:
    asked = world.request(task="sick", controls=0)
    plan = StudyPlan(Columns("sick", "mark"), Plan(KS, 8, 4, 8), "balanced", quick_recipe(), 2, asked)
    return replace(plan, **changes)


@dataclass(frozen=True)
class Done:
    """A study and where it is."""

    plan: StudyPlan
    out: Path
    study: Study


@pytest.fixture(scope="module")
def done(world: World, tmp_path_factory: pytest.TempPathFactory) -> Done:
    out, plan = tmp_path_factory.mktemp("study"), plan_of(world)
    return Done(plan, out, study(open_data(plan.request), plan, out, silence_of))


def test_a_line_for_each_model_and_each_k(done: Done) -> None:
    assert [(line["k"], line["seed"]) for line in done.study.models] == [(k, s) for k in KS for s in (0, 1)]
    assert [(line["k"], line["seeds"]) for line in done.study.rows] == [(100, 2), (50, 2)]
    names = ("auroc_k", "auroc_u", "auroc_uc", "mad", "md1", "md0", "effect", "placebo")
    for line, some in zip(done.study.rows, (done.study.models[:2], done.study.models[2:]), strict=True):
        for name in names:
            values = [model[name] for model in some]
            assert line[name] == pytest.approx(mean(values), abs=1e-4)
            assert line[f"{name}_sd"] == pytest.approx(stdev(values), abs=1e-4)
    assert "ideal_mad" not in done.study.rows[0]
    assert "mad_true" not in done.study.rows[0]


def test_numbers_are_those_of_the_audit(done: Done) -> None:
    rows = {line.model: line for line in done.study.found.audit.rows}
    assert sorted(rows) == ["k100-seed0", "k100-seed1", "k50-seed0", "k50-seed1"]
    for line in done.study.models:
        found = rows[f"k{line['k']:g}-seed{line['seed']}"]
        assert (line["mad"], line["md1"], line["md0"]) == (
            found.mad.value,
            found.md_with.value,
            found.md_without.value,
        )
    assert rows["k50-seed0"].mad.n == 8  # test_u


def test_the_area_on_test_k_is_that_of_the_model(done: Done) -> None:
    from sklearn.metrics import roc_auc_score

    plan, table = done.plan, open_data(done.plan.request)
    ids = curate(table, plan.columns, plan.plan).test[100.0]
    rows = [table.ids.index(name) for name in ids]
    x = torch.stack([io.read(table.paths[place]).x for place in rows])
    scores = open_audited(done.out / "models" / "k100-seed1" / "classifier").ask(x)[:, 0]
    labels = [table.labels["sick"][place] for place in rows]
    assert done.study.models[1]["auroc_k"] == round(roc_auc_score(labels, scores), 4)


def test_it_goes_on_where_it_stopped(done: Done) -> None:
    models = {path: path.read_bytes() for path in done.out.rglob("model.safetensors")}
    before = {path: path.stat().st_mtime_ns for path in done.out.rglob("*.png")}
    again = study(open_data(done.plan.request), done.plan, done.out, silence_of)
    assert (again.rows, again.models, again.trend) == (done.study.rows, done.study.models, done.study.trend)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {path: path.read_bytes() for path in models} == models
    assert len(models) >= 4


def test_the_trend_is_over_all_models(done: Done) -> None:
    values = np.array([line["mad"] for line in done.study.models])
    slopes = [(one - other) / 50 for one in values[:2] for other in values[2:]]
    assert done.study.trend["slope_per_point"] == pytest.approx(np.median(slopes), abs=1e-5)
    assert 0 < done.study.trend["p"] <= 1


def test_one_k_has_no_trend_and_phantoms_an_ideal(done: Done, world: World, tmp_path: Path) -> None:
    plan = plan_of(world, plan=Plan((100.0,), 8, 4, 8), seeds=1, phantom=True)
    found = study(open_data(plan.request), plan, tmp_path, silence_of)
    assert found.trend == {}
    assert found.rows[0]["ideal_mad"] == pytest.approx(ideal_observer(100, Dials()).mad, abs=1e-4)
    assert found.rows[0]["mad_sd"] is None


def test_the_true_numbers_stand_beside_the_estimated() -> None:
    told = numbers(row(MadeUp(), 0, ("drain", "net", "sick")))
    assert (told["auroc_u"], told["auroc_uc"]) == (0.91, 0.84)
    assert told["mad"] == pytest.approx(0.34)
    assert told["mad_true"] == pytest.approx(0.35)
    assert (told["md1_true"], told["md0_true"], told["effect_true"]) == pytest.approx((0.31, -0.31, 0.32))
    bare = numbers(row(MadeUp(extras=False), 0, ("drain", "net", "sick")))
    assert not any(name.endswith("_true") for name in bare)


def test_images_to_validate_on() -> None:
    names = tuple(map(str, range(25)))
    found = train_ids(Curation({50.0: names}, {50.0: ("x",)}, {}, (), {}), 50.0)
    assert (found.train, found.val) == (names, ("x",))
    held = train_ids(Curation({50.0: names}, {}, {}, (), {}), 50.0)
    assert list(held.val) == ["0", "10", "20"]
    assert sorted([*held.train, *held.val], key=int) == list(names)


def test_what_is_refused_before_anything_is_trained(world: World, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seeds: expected one model or more, got 0"):
        study(open_data(world.request()), plan_of(world, seeds=0), tmp_path, silence_of)
    with pytest.raises(InputError, match="columns: expected a task and one shortcut, got no task and 1"):
        columns_of(world.request())
    with pytest.raises(InputError, match="got sick and 2"):
        columns_of(world.request(task="sick", shortcuts={"mark": None, "other": None}))
    with pytest.raises(InputError, match="--bundle: expected a bundle, to make counterfactuals with, got no"):
        check_bundle(world.request(shortcuts={"mark": None}))
    with pytest.raises(CheckpointError, match="bundle nowhere"):
        check_bundle(world.request(shortcuts={"mark": "nowhere"}))
    assert not any(tmp_path.iterdir())


def test_models_learn_from_images_as_the_request_reads_them(world: World) -> None:
    assert recipe_of("resnet18", world.request()).size == 224
    found = recipe_of("small", world.request(size=32, convert=True))
    assert (found.size, found.convert) == (32, True)
    assert columns_of(world.request(task="sick", group="site")) == Columns("sick", "mark", None, "site")
