"""Keeps chosen steps of the attempts that are kept: the paths of the paper's figures."""

from collections.abc import Collection

import torch
from torch import Tensor

from fastdime.counterfactuals.step import Event
from fastdime.types import Moment


class Recorder:
    """Records x_t, x0_hat and mask at some steps, for the whole batch, and counts steps."""

    def __init__(self, x: Tensor, wanted: Collection[int]) -> None:
        """Store what to record; steps of a second pass go on counting."""
        self._x = x
        self._wanted = frozenset(wanted)
        self._kept: dict[int, Moment] = {}
        self._events: dict[int, Event] = {}
        self.steps = 0

    def begin(self) -> None:
        """Start another attempt."""
        self._events.clear()
        self.steps = 0

    def see(self, event: Event) -> None:
        """Take note of a finished step."""
        if self.steps in self._wanted:
            self._events[self.steps] = event
        self.steps += 1

    def keep(self, rows: Tensor, better: Tensor) -> None:
        """Make this attempt the record of the images it improved (`rows[better]` of the batch)."""
        for number, event in self._events.items():
            old = self._kept.get(number) or self._empty(event.t)
            place = rows[better]
            mask = torch.ones_like(event.x_t[:, :1], dtype=torch.bool) if event.mask is None else event.mask
            self._kept[number] = Moment(
                event.t,
                old.x_t.index_copy(0, place, event.x_t[better]),
                old.x0_hat.index_copy(0, place, event.x0_hat[better]),
                old.mask.index_copy(0, place, mask.any(1, keepdim=True)[better]),
            )

    @property
    def trajectory(self) -> tuple[Moment, ...]:
        """The recorded steps in order."""
        return tuple(self._kept[number] for number in sorted(self._kept))

    def _empty(self, t: int) -> Moment:
        return Moment(t, self._x, self._x, torch.zeros_like(self._x[:, :1], dtype=torch.bool))
