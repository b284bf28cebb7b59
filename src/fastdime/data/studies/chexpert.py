"""CheXpert, in its own folders or as one flat folder, with the published pacemaker labels."""

import re

from fastdime.data.studies.study import XRAY, Study, last_part

VIEW = re.compile(r"(?:.*/)?(patient\d+)/(study\d+)/(view\d+_\w+)\.\w+")


def key(path: str) -> str:
    """Name an image as the annotations do.

    >>> key("CheXpert-v1.0-small/train/patient00001/study2/view1_frontal.jpg")
    'patient00001_study2_view1_frontal'
    >>> key("flat/patient00001_study2_view1_frontal.jpg")
    'patient00001_study2_view1_frontal'
    """
    found = VIEW.fullmatch(path)
    return "_".join(found.groups()) if found else last_part(path)


def patient(name: str) -> str:
    """Return the patient of an image."""
    return name.partition("_")[0]


STUDY = Study(
    task="Cardiomegaly",
    shortcut="PM",
    form=XRAY,
    annotations="che_pm_meta.csv",
    key=key,
    patient=patient,
)
