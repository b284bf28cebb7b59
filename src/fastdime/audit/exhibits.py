"""Pictures for the report of an audit: where the models look, and how a few counterfactuals came about."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastdime.audit.answers import ORIGINAL
from fastdime.audit.audit import Asked, Found, explainer_of
from fastdime.audit.models import open_audited
from fastdime.audit.opening import is_table
from fastdime.audit.path import write_paths
from fastdime.audit.pictures import Show
from fastdime.audit.request import AuditRequest
from fastdime.audit.saliency import write_smoothgrad
from fastdime.bundles import load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.errors import MissingExtra
from fastdime.runs import file_stem

PATHS = 3  # images with a path
SMOOTHGRAD, PATH = "smoothgrad", "path"


def write_exhibits(
    found: Found, request: AuditRequest, models: Mapping[str, object], out: str | Path, show: Show
) -> list[str]:
    """Write SmoothGrad pictures and paths of the images that moved most and least; return what is missing."""
    missing: list[str] = []
    for each in found.asked:
        rows = _telling(found, each, request.pictures)
        if each.album is None or not rows:
            continue
        home = Path(out) / each.generator.folder
        try:
            _saliency(each, models, rows, home / SMOOTHGRAD)
        except MissingExtra as error:
            missing.append(f"no SmoothGrad pictures: {error}")
        with show(f"{each.column}: {PATH}") as progress:
            explainer = _explainer(each, request)
            targets = [
                (each.ids[row], each.album.read(ORIGINAL, row), 1 - int(each.shortcut[row])) for row in rows
            ]
            write_paths(explainer, targets[:PATHS], home / PATH, progress=progress)
    return missing


def _telling(found: Found, each: Asked, count: int) -> list[int]:
    """Return the images that move some model most, then those that move it least, in turns."""
    sizes = [effects.size for (column, _, _), effects in found.effects.items() if column == each.column]
    if not sizes or not count:
        return []
    most = np.nan_to_num(np.max(sizes, axis=0))
    order = np.argsort(-most, kind="stable").tolist()
    turns = [row for pair in zip(order, reversed(order), strict=True) for row in pair]
    return list(dict.fromkeys(turns))[:count]


def _saliency(each: Asked, models: Mapping[str, object], rows: list[int], folder: Path) -> None:
    assert each.album is not None
    images = [(each.ids[row], each.album.read(ORIGINAL, row)) for row in rows]
    for name, source in models.items():
        if is_table(source):
            continue
        channels, height, width = images[0][1].shape
        model = open_audited(source, name, shape=(channels, height, width))
        write_smoothgrad(model, images, 0, folder / file_stem(name))


def _explainer(each: Asked, request: AuditRequest) -> Explainer:
    """Return the explainer of the audit; of a difference of two chains it shows the guided one."""
    explainer = explainer_of(load_bundle(str(request.shortcuts[each.column])), request)
    settings = explainer.resolved
    if isinstance(settings, GuidedSettings) and settings.second_pass == "null":
        settings = settings.model_copy(update={"second_pass": "none"})
    return replace(explainer, settings=settings)
