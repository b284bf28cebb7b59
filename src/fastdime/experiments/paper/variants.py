"""Rows of a table that are methods with some settings changed; pixels and levels of the paper are scaled."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastdime.bundles import BundleInfo
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.settings import Settings


@dataclass(frozen=True)
class Pixels:
    """A number of pixels in an image whose side has `of`; here it is the nearest odd one of the same share.

    >>> Pixels(21, of=224).here(64, 30), Pixels(21, of=224).here(224, 160)
    (7, 21)
    """

    number: int
    of: int

    def here(self, size: int, tau: int) -> int:
        """Return an odd number of pixels."""
        return 2 * (self.number * size // (2 * self.of)) + 1


@dataclass(frozen=True)
class Below:
    """The levels below tau_w, where masks are used; published for a chain of which `of` levels are run.

    >>> Below(80, of=160).here(64, 30), Below(45, of=60).here(64, 60)
    (14, 44)
    """

    number: int
    of: int

    def here(self, size: int, tau: int) -> int:
        """Return the highest of these levels, which count from 0."""
        return max((2 * self.number * tau + self.of) // (2 * self.of) - 1, 0)


@dataclass(frozen=True)
class Variant:
    """A row: a method with some settings changed.

    Attributes:
        name: of the row, and of the folder of its run.
        changes: settings; Pixels and Below are the paper's, and are scaled.
    """

    name: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def changed(self, info: BundleInfo) -> dict[str, Any]:
        """Return the changed settings as they are for the images and the chain of a bundle."""
        plain = {name: it for name, it in self.changes.items() if not isinstance(it, Pixels | Below)}
        tau = int(getattr(self._settings(info, plain), "tau", 0))
        return {
            name: value.here(info.size, tau) if isinstance(value, Pixels | Below) else value
            for name, value in self.changes.items()
        }

    def settings(self, info: BundleInfo) -> Settings:
        """Return the settings that work for a bundle, with the changes."""
        return self._settings(info, self.changed(info))

    def _settings(self, info: BundleInfo, changes: Mapping[str, Any]) -> Settings:
        return settings_for(self.method, **info.settings.get(self.method, {}) | dict(changes))
