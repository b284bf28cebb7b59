"""ISIC 2018 task 3 (HAM10000), in its own folder or as one flat folder, with the published ruler labels."""

from fastdime.data.forms import Form
from fastdime.data.studies.study import Study

STUDY = Study(
    task="Mal",
    shortcut="Ruler",
    form=Form(size=224, channels=3, convert=True, fit="stretch", smooth="bicubic"),
    annotations="isic_ruler_meta.csv",
    folder="ISIC2018_Task3_Training_Input",
)
