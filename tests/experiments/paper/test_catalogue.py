"""The declarations: numbers of the paper, rows that have them, and what does the work."""

from collections import Counter

import pytest

from fastdime.bundles import load_info, shipped
from fastdime.counterfactuals.methods import METHODS
from fastdime.errors import InputError
from fastdime.experiments.paper.catalogue import EXPERIMENTS, experiment
from fastdime.experiments.paper.experiment import DATA_SETS, STANDS_FOR
from fastdime.experiments.paper.published import COMPLEXITY
from fastdime.experiments.paper.table import RUNNERS, listed, runner_of

GRIDS = ("counterfactuals", "ablation-mask", "ablation-methods")


@pytest.mark.parametrize(
    ("name", "row", "numbers"),
    [
        ("counterfactuals", "celeba/dime", {"fid": 3.17, "fva": 0.983, "cout": 0.526, "fr": 0.972}),
        ("counterfactuals", "celeba/ace-l2", {"fid": 1.9, "mnac": 2.77, "bkl": 0.326, "mad": 0.59}),
        ("counterfactuals", "celeba-age/fastdime-2+", {"sfid": 5.59, "fs": 0.766, "cd": 3.76, "fr": 0.987}),
        ("counterfactuals", "chexpert/fastdime", {"l1": 0.0897, "mad": 0.7554, "fid": 61.401}),
        ("counterfactuals", "nih/dime", {"l1": 0.0748, "mad": 0.2536, "fid": 94.3023}),
        ("counterfactuals", "isic/fastdime-2", {"l1": 0.0661, "mad": 0.4428, "fid": 87.4575}),
        ("efficiency", "celeba/dime", {"seconds_per_batch": 218.8, "total_seconds": 43808}),
        ("efficiency", "celeba/gmd-nomask", {"peak_memory_mb": 4200, "total_seconds": 6345}),
        ("efficiency", "celeba/fastdime", {"seconds_per_batch_sd": 5.1, "total_seconds": 2755}),
        ("shortcuts", "isic/D_100", {"mad": 0.19, "md1": 0.15, "md0": -0.2, "auroc_uc": 0.79}),
        ("shortcuts", "celeba/D_50", {"auroc_k": 0.87, "md1": 0.09, "md0": 0.04}),
        ("shortcuts", "nih/D_75", {"auroc_u": 0.73, "mad": 0.07, "md0": -0.1}),
        ("ablation-mask", "chexpert/dilation 55", {"l1": 0.1054, "mad": 0.7689, "fid": 67.1333}),
        ("ablation-mask", "chexpert/tau_w 40", {"l1": 0.0898, "mad": 0.6775, "fid": 62.6441}),
        ("ablation-mask", "chexpert/threshold 0.3", {"l1": 0.0364, "mad": 0.6465, "fid": 39.271}),
        ("ablation-methods", "celeba/gmd d15 w30", {"fr": 0.881, "cd": 2.37, "mad": 0.71}),
        ("ablation-methods", "celeba/without mask + repaint d15", {"fr": 0.64, "fid": 9.7}),
        ("ablation-methods", "celeba-age/fastdime d5 w60", {"fid": 12.7, "mnac": 3.11, "mad": 0.73}),
    ],
)
def test_numbers_are_those_of_the_paper(name: str, row: str, numbers: dict[str, float]) -> None:
    found = experiment(name).published[row]
    assert {column: found[column] for column in numbers} == numbers


def test_how_many_numbers_there_are() -> None:
    """Six methods by ten metrics twice and four by three in three data sets; and so on."""
    count = {name: sum(map(len, each.published.values())) for name, each in EXPERIMENTS.items()}
    assert count["counterfactuals"] == 2 * 6 * 10 + 3 * 4 * 3
    assert count["efficiency"] == 8 * 4
    assert count["shortcuts"] == 4 * 3 * 6
    assert count["ablation-mask"] == 14 * 3
    assert count["ablation-methods"] == (13 + 12) * 6


@pytest.mark.parametrize("name", [*GRIDS, "efficiency"])
def test_every_number_belongs_to_a_row(name: str) -> None:
    rows = Counter(variant.name for variant in experiment(name).variants)
    assert max(rows.values()) == 1
    for key in experiment(name).published:
        data_set, _, row = key.partition("/")
        assert data_set in DATA_SETS
        assert row in rows, key


@pytest.mark.parametrize("bundle", shipped())
@pytest.mark.parametrize("name", [*GRIDS, "efficiency"])
def test_all_settings_are_settings_and_no_two_rows_are_one(name: str, bundle: str) -> None:
    info, each = load_info(bundle), experiment(name)
    told = [(variant.method, variant.settings(info).model_dump_json()) for variant in each.variants]
    assert {variant.method for variant in each.variants} <= METHODS.keys()
    assert len(set(told)) == len(told)


def test_efficiency_says_how_each_method_grows() -> None:
    assert COMPLEXITY.keys() == {variant.name for variant in experiment("efficiency").variants}


def test_a_phantom_has_the_numbers_of_its_data_set_beside() -> None:
    tables = experiment("counterfactuals")
    beside = tables.beside("skin-ruler", "dime")
    assert beside == {"paper_l1": 0.0779, "paper_mad": 0.524, "paper_fid": 121.5135}
    assert tables.beside("isic", "dime") == beside
    face = tables.beside("face-smile", "fastdime")
    assert (face["paper_fid"], face["paper_age_fid"]) == (4.18, 4.82)
    assert tables.beside("chest-drain", "turbo") == {}
    assert all(data_set in DATA_SETS for names in STANDS_FOR.values() for data_set in names.values())


def test_each_experiment_has_a_runner_and_a_line_in_the_list() -> None:
    assert RUNNERS.keys() == EXPERIMENTS.keys()
    assert all(callable(runner_of(name)) for name in EXPERIMENTS)
    assert [line["experiment"] for line in listed()] == list(EXPERIMENTS)
    assert all(line["minutes"] <= 45 for line in listed())
    assert sum(line["minutes"] for line in listed()) <= 180


def test_an_experiment_that_is_not_there() -> None:
    with pytest.raises(InputError, match="did you mean 'ablation-mask'"):
        experiment("ablation-masks")
    with pytest.raises(InputError, match="--scale: expected one of small, full"):
        experiment("toy2d").size("large")  # type: ignore[arg-type]
