"""The settings that a command asks for: --method, --preset and --set, or a file that was chosen before."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from fastdime.bundles import load_info
from fastdime.configs import changes, checked, read_json
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.settings import Settings
from fastdime.errors import FastdimeError, InputError, expected
from fastdime.files import write_atomically

PRESET, KIND = "default", "tune"


class Choice(BaseModel):
    """What a file for --config says; anything else in it is for people, so a run's config.json will do.

    Attributes:
        settings: what differs from the default of the method; no preset and no bundle adds to it.
    """

    model_config = ConfigDict(frozen=True)

    method: str
    settings: dict[str, JsonValue] = {}


def wanted_changes(
    config: Path | None, method: str | None, items: Iterable[str], usual: str
) -> tuple[str, dict[str, Any]]:
    """Return the method and the settings to change; a file names every setting, and --set goes on top.

    Args:
        items: NAME=VALUE.
        usual: the method if neither the file nor the user names one.
    """
    if config is None:
        name = method or usual
        return name, changes(items, type(settings_for(name)))
    choice = checked(Choice, read_json(config), str(config), InputError)
    if method not in (None, choice.method):
        remedy = "leave --method out"
        raise InputError(expected("--method", f"{choice.method}, as in {config}", method, remedy))
    given = changes(items, type(settings_for(choice.method)))
    return choice.method, settings_for(choice.method, **choice.settings | given).model_dump()


def wanted_settings(
    config: Path | None, method: str | None, items: Iterable[str], preset: str, bundle: str | None
) -> tuple[str, Settings]:
    """Return the method and its settings, as `fastdime explain` takes them."""
    if config is not None and preset != PRESET:
        raise InputError(expected("--preset", f"none beside --config {config}", preset, "leave one out"))
    name, given = wanted_changes(config, method, items, "fastdime")
    # A preset is what was published; "default" is what works, and for a bundle that is known.
    fitting = load_info(bundle).settings.get(name, {}) if bundle and preset == PRESET else {}
    return name, settings_for(name, preset, **fitting | given)


def check_place(path: Path) -> None:
    """Refuse to write a choice over anything but an earlier one."""
    if path.is_file() and _kind(path) == KIND:
        return
    if path.exists():
        wanted = "a new file, or one that fastdime tune wrote"
        raise InputError(expected(str(path), wanted, "something else", "choose another --out"))


def _kind(path: Path) -> object:
    try:
        return read_json(path).get("kind")
    except FastdimeError:
        return None


def write_choice(path: Path, method: str, settings: Settings, **told: JsonValue) -> None:
    """Write a file for --config.

    Args:
        told: what people may want to know about the choice.
    """
    usual = settings_for(method).model_dump(mode="json")
    values = settings.model_dump(mode="json")
    differing = {name: value for name, value in values.items() if usual[name] != value}
    text = json.dumps({"kind": KIND, "method": method, "settings": differing, **told}, indent=2)
    write_atomically(path, f"{text}\n".encode())
