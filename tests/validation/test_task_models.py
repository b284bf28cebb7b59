"""Task models: from lists of ids to a folder that opens, the same in any order and after any stop."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastdime.classifiers.load import load_classifier
from fastdime.data.io import write_image
from fastdime.data.phantoms.phantom import phantom
from fastdime.data.table import Table
from fastdime.errors import DataError, InputError
from fastdime.experiments.oracles import judge_spec
from fastdime.training.augment import Augment
from fastdime.training.mending import Mending
from fastdime.training.pictures import Pictures
from fastdime.training.settings import TrainSettings
from fastdime.validation.task_models import (
    MODELS,
    Examples,
    Ids,
    ModelRecipe,
    model_recipe,
    model_settings,
    model_task,
    train_task_model,
)

N = 16
SMALL = MODELS["small"]
QUICK = replace(SMALL, settings={**SMALL.settings, "steps": 4, "batch_size": 4, "checkpoint_seconds": 1e-9})
NAMES = tuple(f"image-{number:02}" for number in range(N))
IDS = Ids(NAMES[:10], NAMES[10:])
AUGMENT, BOTH = Mending(augment=True), Mending(augment=True, consistency=1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of D_100 and their exact counterfactuals."""
    root = tmp_path_factory.mktemp("images")
    batch = phantom("chest-pacemaker", 32).render(5, range(N), 100)
    for name, x, other in zip(NAMES, batch.x, batch.other, strict=True):
        write_image(root / f"{name}.png", x)
        write_image(root / f"{name}-cf.png", other)
    return root


def examples(folder: Path, ids: Ids = IDS, partners: tuple[str, ...] = (), blank: str = "") -> Examples:
    task = tuple(float("nan") if name == blank else float(row % 2) for row, name in enumerate(NAMES))
    shortcut = tuple(float(row % 2) for row in range(N))
    table = Table(
        NAMES, tuple(folder / f"{name}.png" for name in NAMES), {"Sick": task, "Pacemaker": shortcut}
    )
    files = {name: folder / f"{name}-cf.png" for name in partners}
    return Examples(table, "Sick", ids, "Pacemaker", files)


def weights(out: Path) -> bytes:
    return (out / "classifier" / "model.safetensors").read_bytes()


class Killed(Exception):
    """Stands for a signal."""


# --- what comes of it ------------------------------------------------------------------------------------


def test_a_model_opens_and_a_second_call_returns_it(folder: Path, tmp_path: Path) -> None:
    told: list[tuple[float, int]] = []
    first = train_task_model(
        examples(folder), tmp_path, QUICK, 3, progress=lambda done, of: told.append((done, of))
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    kept = weights(tmp_path)
    network = load_classifier(first.folder)
    assert network.logits(torch.zeros(2, 1, 32, 32), torch.zeros(2, dtype=torch.int64)).shape == (2, 1)
    again = train_task_model(
        examples(folder), tmp_path, QUICK, 3, progress=lambda done, of: pytest.fail("more")
    )
    assert (again.scores, again.step, weights(tmp_path)) == (first.scores, 4, kept)


@pytest.mark.parametrize("mending", [None, BOTH, Mending(augment=True, balance=True)])
def test_stops_and_order_do_not_matter(mending: Mending | None, folder: Path, tmp_path: Path) -> None:
    def stop(done: float, of: int) -> None:
        if done == 2:
            raise Killed

    given = examples(folder, partners=NAMES if mending else ())
    train_task_model(given, tmp_path / "whole", QUICK, mending=mending)
    table = given.table.take(reversed(range(N)))
    ids = Ids(IDS.train[::-1], IDS.val[::-1])
    other = replace(given, table=table, ids=ids, partners=dict(reversed(given.partners.items())))
    with pytest.raises(Killed):
        train_task_model(given, tmp_path / "broken", QUICK, mending=mending, progress=stop)
    train_task_model(other, tmp_path / "broken", QUICK, mending=mending)
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")


def test_counterfactuals_change_what_is_learned_and_chosen_by(folder: Path, tmp_path: Path) -> None:
    plain, some, every = tmp_path / "plain", tmp_path / "some", tmp_path / "every"
    train_task_model(examples(folder), plain, QUICK)
    one = train_task_model(examples(folder, partners=NAMES[:10]), some, QUICK, mending=BOTH)
    two = train_task_model(examples(folder, partners=NAMES), every, QUICK, mending=BOTH)
    assert weights(plain) != weights(some)
    assert one.scores != two.scores  # those of validation images validate too


def test_a_run_goes_on_only_with_the_same_counterfactuals(folder: Path, tmp_path: Path) -> None:
    train_task_model(examples(folder, partners=NAMES), tmp_path, QUICK, mending=AUGMENT)
    with pytest.raises(InputError, match=r"task\.mending\.partners = 9, where the run has 10"):
        train_task_model(examples(folder, partners=NAMES[1:]), tmp_path, QUICK, mending=AUGMENT)
    with pytest.raises(InputError, match=r"task\.mending\.consistency = 1\.0, where the run has 0\.0"):
        train_task_model(examples(folder, partners=NAMES), tmp_path, QUICK, mending=BOTH)
    with pytest.raises(InputError, match=r"settings\.seed = 1, where the run has 0"):
        train_task_model(examples(folder, partners=NAMES), tmp_path, QUICK, 1, mending=AUGMENT)


# --- recipes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chest-pacemaker", "skin-ruler"])
def test_the_small_recipe_is_that_of_dose_and_response(name: str) -> None:
    batch = torch.zeros(4, phantom(name).study.channels, 64, 64, dtype=torch.uint8)
    pictures = Pictures(batch, 8, torch.tensor([0.0, 1.0, 0.0, 1.0]))
    task = model_task(SMALL, pictures, pictures)
    assert task.spec == judge_spec(name)
    assert (task.augment, task.smoothing, task.balance, task.levels) == (Augment(shift=3), 0.0, True, 1)
    assert model_settings(SMALL, 2, 1800) == TrainSettings(
        steps=500, batch_size=32, learning_rate=3e-3, warmup=100, ema=0.99, validate_every=50, seed=2
    )


def test_a_resnet_counts_in_epochs_and_knows_its_size(folder: Path, tmp_path: Path) -> None:
    recipe = MODELS["resnet18"]
    assert recipe.size == 224
    settings = model_settings(recipe, 0, 1395)
    assert (settings.steps, settings.validate_every) == (50 * 44, 44)
    quick = replace(recipe, settings={**recipe.settings, "batch_size": 10}, epochs=1, size=32)
    found = train_task_model(examples(folder), tmp_path, quick)
    network = load_classifier(found.folder)
    assert (found.step, network.size, network.channels) == (1, 32, 1)


def test_weights_to_begin_with(folder: Path, tmp_path: Path) -> None:
    train_task_model(examples(folder), tmp_path / "first", QUICK)
    further = replace(QUICK, start=tmp_path / "first")
    train_task_model(examples(folder), tmp_path / "further", further)
    assert weights(tmp_path / "further") != weights(tmp_path / "first")


def test_names_of_recipes() -> None:
    assert isinstance(model_recipe("small"), ModelRecipe)
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        model_recipe("resnet")


# --- what is refused -------------------------------------------------------------------------------------


def test_ids_that_cannot_be_right(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ids to validate on: expected one or more, got none; hold some"):
        Ids(NAMES, ())
    with pytest.raises(InputError, match="expected each once, got 'image-03' twice"):
        Ids(NAMES[:10], NAMES[3:4])
    with pytest.raises(InputError, match=r"id of an image: .* got 'image-99'"):
        train_task_model(examples(folder, Ids(NAMES[:4], ("image-99",))), tmp_path, QUICK)


def test_a_blank_label_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 'Sick' of image 'image-04': expected 0 or 1, got a blank"):
        train_task_model(examples(folder, blank="image-04"), tmp_path, QUICK)


def test_counterfactuals_that_are_missing_or_of_no_use(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="counterfactuals: expected none for this training, got 16"):
        train_task_model(examples(folder, partners=NAMES), tmp_path, QUICK)
    with pytest.raises(InputError, match="counterfactuals of the training images: expected some, got none"):
        train_task_model(examples(folder, partners=NAMES[10:]), tmp_path, QUICK, mending=AUGMENT)


def test_counterfactuals_of_another_size(folder: Path, tmp_path: Path) -> None:
    smaller = replace(QUICK, size=24)
    with pytest.raises(DataError, match=r"counterfactual .*image-00-cf.png: expected \(1, 24, 24\)"):
        train_task_model(examples(folder, partners=NAMES), tmp_path, smaller, mending=AUGMENT)
    given = examples(folder, partners=NAMES)
    with pytest.raises(DataError, match=r"nowhere\.png"):
        train_task_model(
            replace(given, partners={"image-01": folder / "nowhere.png"}), tmp_path, QUICK, mending=AUGMENT
        )


def test_full_correlation_cannot_be_balanced(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"task 0 and shortcut 1: .* only counterfactuals can fill this cell"):
        train_task_model(examples(folder), tmp_path, QUICK, mending=Mending(balance=True))
    with pytest.raises(InputError, match="shortcut: expected a column of the table, to balance by, got none"):
        train_task_model(
            replace(examples(folder), shortcut=None), tmp_path, QUICK, mending=Mending(balance=True)
        )
    assert not any(tmp_path.iterdir())
