"""Settings from files and users: read them, check them, and say in one sentence what is wrong."""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, validate_call

from fastdime.errors import CheckpointError, FastdimeError, InputError, expected, unknown

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")


def checked(model: type[Model], values: Any, where: str, kind: type[FastdimeError]) -> Model:
    """Make a model of values; what is wrong with them becomes one sentence that begins with `where`."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise kind(_refusal(error, where, list(model.model_fields))) from None


def called(function: Callable[..., Result], arguments: Mapping[str, Any], where: str) -> Result:
    """Call a function with arguments from a file or a user; wrong ones become one sentence."""
    try:
        return validate_call(function)(**arguments)
    except ValidationError as error:
        raise InputError(_refusal(error, where, [*inspect.signature(function).parameters])) from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        got = f"something else ({' '.join(str(error).split())})"
        raise CheckpointError(expected(str(path), "a JSON file", got)) from None
    if not isinstance(content, dict):
        raise CheckpointError(expected(str(path), "a JSON object {...}", type(content).__name__))
    return content


def _refusal(error: ValidationError, where: str, names: list[str]) -> str:
    """Say the first thing that is wrong; `names` are those that would be right."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return unknown(where, place, names)
    if first["type"] in ("missing", "missing_argument"):
        return expected(where, f"a value for {place}", "none", "write it")
    wanted = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return expected(f"{where}: {place}" if place else where, wanted, repr(first["input"]))
