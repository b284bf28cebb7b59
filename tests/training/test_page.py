"""docs/training.md says what the code does."""

import re

import pytest
import typer

from fastdime.cli_train import app
from fastdime.training.augment import Augment
from fastdime.training.recipes import RECIPES
from fastdime.training.settings import TrainSettings
from support.pages import ROOT, codes, rows, text_of

PAGE = ROOT / "docs" / "training.md"


def test_the_settings_and_their_values() -> None:
    told = {name.strip("`"): value for name, value, _ in rows(PAGE, "setting", "value")}
    assert told.keys() == TrainSettings.model_fields.keys()
    for name, field in TrainSettings.model_fields.items():
        default = field.default
        text = "none" if default is None else f"{default:g}" if isinstance(default, float) else str(default)
        assert told[name] == text, name


@pytest.mark.parametrize("kind", ["denoiser", "guide", "task"])
def test_every_option(kind: str) -> None:
    told = set(re.findall(r"--[a-z-]+", " ".join(row[0] for row in rows(PAGE, "option", "default"))))
    command = typer.main.get_command(app).commands[kind]
    options = {max(parameter.opts, key=len) for parameter in command.params}
    assert options <= told


def test_every_recipe_and_change_of_images() -> None:
    assert {row[0].strip("`") for row in rows(PAGE, "recipe", "denoiser")} == set(RECIPES)
    assert vars(Augment()).keys() <= codes(text_of(PAGE))
