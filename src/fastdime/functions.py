"""`package.module:function`: how a user points at something made in Python."""

import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from fastdime.errors import InputError, expected, unknown

FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def names_function(source: object) -> bool:
    """Tell whether a text is of the form package.module:function."""
    return FUNCTION.fullmatch(str(source)) is not None


def made_by(source: str, what: str, ready: type | tuple[type, ...]) -> object:
    """Import what `package.module:function` names, and call it if it is a function that makes the thing.

    Args:
        what: "denoiser" or "classifier", for the sentences.
        ready: types that are the thing itself and are not called.
    """
    module_name, _, name = source.partition(":")
    module = _imported(module_name, f"{what} {source}")
    found = getattr(module, name, None)
    if found is None:
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module_name]
        raise InputError(unknown(f"{what} {source}: function", name, own))
    if isinstance(found, ready) or not _is_maker(found):
        return found
    try:
        return found()
    except Exception as error:
        raise InputError(_failure(f"{what} {source}", f"a function that returns a {what}", error)) from error


def _imported(module_name: str, what: str) -> ModuleType:
    wanted = "a module that can be imported"
    try:
        with _working_folder_importable():
            return import_module(module_name)
    except ModuleNotFoundError as error:
        # The module itself, or a package it is in; otherwise it is something that the module imports.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(_failure(what, wanted, error)) from error
        remedy = "install it, or run the command in its folder"
        raise InputError(expected(what, wanted, f"no module {error.name}", remedy)) from None
    except Exception as error:
        raise InputError(_failure(what, wanted, error)) from error


def _is_maker(found: object) -> bool:
    """Tell a function that makes a network, and so needs no arguments, from the network itself."""
    if not callable(found):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


@contextmanager
def _working_folder_importable() -> Iterator[None]:
    """Find a module in the folder that a command is run in, as `python -m` does."""
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _failure(what: str, wanted: str, error: Exception) -> str:
    reason = " ".join(str(error).split())
    return expected(what, wanted, f"{type(error).__name__}: {reason}")
