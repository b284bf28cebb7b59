"""Three ways to look at a task model: SmoothGrad, an explanation of it, and the shortcut removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from fastdime.audit.models import Audited, open_audited
from fastdime.audit.pictures import Show
from fastdime.audit.saliency import write_smoothgrad
from fastdime.classifiers.load import load_classifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.data import io
from fastdime.data.phantoms.phantom import phantom
from fastdime.errors import MissingExtra
from fastdime.experiments.paper import stage as common
from fastdime.experiments.paper.experiment import Row
from fastdime.experiments.paper.panels import COLOURS, Board, Panel, Strip, difference_of, image_of
from fastdime.experiments.paper.stage import Drawn, Shots, Stage, explain, failed, fingerprint
from fastdime.types import Counterfactuals

METHOD = "fastdime"
EXPLANATION, SHORTCUT = "explanation", "shortcut counterfactual"
COLUMNS = (*common.COLUMNS, "p_exact")


@dataclass(frozen=True)
class Teaser:
    """The teaser of a phantom.

    Attributes:
        folder: the task model that is looked at.
    """

    stage: Stage
    folder: Path

    @cached_property
    def shots(self) -> Shots:
        """Images with the shortcut."""
        found = self.stage.shots("remove")
        assert found is not None  # a phantom has as many as one likes
        return found

    @cached_property
    def explainers(self) -> dict[str, Explainer]:
        """The same method, once to explain the task model and once the guide."""
        task = load_classifier(self.folder)
        return {
            EXPLANATION: self.stage.explainer(METHOD, task),
            SHORTCUT: self.stage.explainer(METHOD),
        }

    @property
    def asked(self) -> str:
        """Fingerprint of all that decides what is drawn."""
        return fingerprint(self.explainers, self.shots, find_spec("captum") is not None)

    @cached_property
    def model(self) -> Audited:
        """The task model, to be asked."""
        channels, height, width = self.shots.x.shape[1:]
        return open_audited(self.folder, shape=(channels, height, width))

    @property
    def task(self) -> str:
        """What the task model looks for."""
        return phantom(self.stage.source.name).study.task

    def draw(self, show: Show) -> Drawn:
        """Look in three ways."""
        with show(f"teaser {self.stage.source.name}") as progress:
            explanation = explain(self.explainers[EXPLANATION], self.shots, "flip")
            progress(1, 3)
            shortcut = explain(self.explainers[SHORTCUT], self.shots)
            progress(2, 3)
            seen, notes = self._smoothgrad()
            progress(3, 3)
        found = {EXPLANATION: explanation, SHORTCUT: shortcut}
        rows = {name: self._rows(name, each) for name, each in found.items()}
        strips = [self._strip(place, seen, found, rows) for place in range(len(self.shots.x))]
        return Drawn(self._board(strips), [*rows[EXPLANATION], *rows[SHORTCUT]], notes)

    def _smoothgrad(self) -> tuple[list[Tensor], tuple[str, ...]]:
        """Return where the model looks in each image, or why there is nothing of the kind."""
        images = list(zip(self.shots.ids, self.shots.x, strict=True))
        with TemporaryDirectory() as folder:
            try:
                written = write_smoothgrad(self.model, images, 0, folder)
            except MissingExtra as error:
                return [], (f"no SmoothGrad: {error}",)
            return [io.read(path).x for path in written], ()

    def _p(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.model.ask(x)[:, 0]).sigmoid()

    def _rows(self, name: str, found: Counterfactuals) -> list[Row]:
        """Tell what the task model answers; the oracle judges only what should have lost the shortcut."""
        before, after = self._p(self.shots.x), self._p(found.x_cf)
        rows = self.stage.told(name, self.shots, found)
        for row, p, q in zip(rows, before.tolist(), after.tolist(), strict=True):
            row |= {"p_before": round(p, 4), "p_after": round(q, 4)}
        if name == EXPLANATION:
            return [row | {"oracle_ok": None, "whole_ok": None} for row in rows]
        assert self.shots.truth is not None
        exact = self._p(self.shots.truth).tolist()
        return [row | {"p_exact": round(p, 4)} for row, p in zip(rows, exact, strict=True)]

    def _strip(
        self,
        place: int,
        seen: Sequence[Tensor],
        found: dict[str, Counterfactuals],
        rows: dict[str, list[Row]],
    ) -> Strip:
        shots, told = self.shots, rows[SHORTCUT][place]
        assert shots.truth is not None
        x = shots.x[place]
        panels = [
            Panel(image_of(x), [f"says {told['p_before']:.2f}"], box=shots.box(place)),
            Panel(image_of(seen[place])) if seen else Panel(None, ["needs captum"]),
        ]
        for name, each in found.items():
            row, x_cf = rows[name][place], each.x_cf[place]
            panels += [
                Panel(image_of(x_cf), [_answer(row["p_before"], row["p_after"])], failed(row)),
                Panel(difference_of(x, x_cf), [f"mean change {row['change']:.4f}"]),
            ]
        exact = Panel(image_of(shots.truth[place]), [_answer(told["p_before"], told["p_exact"])])
        return Strip(shots.label(place), [*panels, exact], apart=True)

    def _board(self, strips: list[Strip]) -> Board:
        shortcut = self.stage.shortcut
        titles = [
            f"original with\n{shortcut} (box)",
            "SmoothGrad:\nwhere it looks",
            "explanation: any\nchange that flips it",
            "what that changes",
            f"{shortcut} removed\nby FastDiME",
            "what that changes",
            f"{shortcut} removed,\nexact truth",
        ]
        heading = f"Does the model see {self.task} because of the {shortcut}?"
        says = f"Model {self.folder.name} says: probability of {self.task}, before -> after the change."
        return Board(heading, titles, strips, f"{says} Red frame: the change did not succeed. {COLOURS}")


def _answer(before: float, after: float) -> str:
    return f"says {before:.2f} -> {after:.2f}"
