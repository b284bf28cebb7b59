"""The studies by name."""

from pathlib import Path

from fastdime.data.forms import Form
from fastdime.data.studies import celeba, chexpert, isic, nih
from fastdime.data.studies.study import Joined, Study, join
from fastdime.errors import InputError, unknown

STUDIES = {"celeba": celeba.STUDY, "chexpert": chexpert.STUDY, "nih": nih.STUDY, "isic": isic.STUDY}


def read_study(
    name: str,
    root: str | Path,
    annotations: str | Path | None = None,
    *,
    task: str | None = None,
    shortcut: str | None = None,
) -> Joined:
    """Join the images of a published data set with their labels, as `study.join` does.

    Args:
        name: celeba, chexpert, nih or isic.
    """
    return join(study(name), root, annotations, task=task, shortcut=shortcut)


def form_like(name: str) -> Form:
    """Look up the form that the images of a published data set are brought into."""
    if name not in STUDIES:
        raise InputError(unknown("--like", name, STUDIES))
    return STUDIES[name].form


def study(name: str) -> Study:
    """Look a study up."""
    if name not in STUDIES:
        raise InputError(unknown("data set", name, [*STUDIES, "own"]))
    return STUDIES[name]
