"""What can go wrong for a user, and the sentences that say so.

FastdimeError
├── InputError        an argument, a shape, a range, a name
├── DataError         an image file or a table
├── CheckpointError   a file with weights
└── MissingExtra      an optional package that is not installed

The command line prints the message of any of these on one line and exits with code 2.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_SHOWN, NEAREST = 12, 5  # of a longer list than the first, so many are shown


class FastdimeError(Exception):
    """Base of every error that a user can cause and mend."""


class InputError(FastdimeError):
    """An argument is not what it should be."""


class DataError(FastdimeError):
    """An image file or a table cannot be used."""


class CheckpointError(FastdimeError):
    """A file with weights cannot be used."""


class MissingExtra(FastdimeError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        """Say which package is missing, for what, and which extra brings it."""
        super().__init__(f"{purpose} needs the package {package}: pip install 'fastdime[{extra}]'")


def expected(what: str, wanted: object, got: object, remedy: str = "") -> str:
    """Build the one sentence form that every error uses.

    >>> expected("--seed", "a whole number >= 0", -3, "give another seed")
    '--seed: expected a whole number >= 0, got -3; give another seed'
    """
    sentence = f"{what}: expected {wanted}, got {got}"
    return f"{sentence}; {remedy}" if remedy else sentence


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Build the sentence for a name that is not in a list, with the nearest one that is.

    >>> unknown("method", "fastdim", ["dime", "fastdime"])
    "method: expected one of dime, fastdime, got 'fastdim'; did you mean 'fastdime'?"
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    return expected(what, f"one of {listed(name, names)}", repr(name), hint)


def listed(name: str, names: Sequence[str]) -> str:
    """Name all, or those of many that are most like a name.

    >>> listed("mark", ["mark", "site"])
    'mark, site'
    """
    if len(names) <= MOST_SHOWN:
        return ", ".join(names)
    nearest = get_close_matches(name, names, n=NEAREST, cutoff=0)
    return f"{', '.join(nearest)} and {len(names) - len(nearest)} others"
