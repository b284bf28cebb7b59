"""Settings from files and users: read them, check them, and say in one sentence what is wrong."""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

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


def changes(
    items: Iterable[str], model: type[BaseModel] | None = None, option: str = "--set"
) -> dict[str, Any]:
    """Parse NAME=VALUE items of an option, for the fields of a model if one is given.

    A value with commas is a list, and "none" may be a word or, where a field may be None, nothing.

    >>> class Some(BaseModel):
    ...     speed: float | None = 1.0
    >>> changes(["speed=none"], Some), changes(["speed=2,3"], Some)
    ({'speed': None}, {'speed': [2, 3]})
    """
    found: dict[str, Any] = {}
    fields = model.model_fields if model is not None else {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise InputError(expected(option, "NAME=VALUE", repr(item)))
        kinds = fields[name].annotation if name in fields else None
        values = [_value(part) for part in text.split(",")]
        found[name] = values if "," in text or get_origin(kinds) is tuple else values[0]
        if text.lower() == "none" and type(None) in get_args(kinds):
            found[name] = None
    return found


def _value(text: str) -> Any:
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


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
