"""NIH ChestX-ray14, in its folders images_001 ... or one flat folder, with the published drain labels."""

from pathlib import Path

from fastdime.data.cells import Sheet, read_sheet, read_words
from fastdime.data.studies.study import IMAGE, XRAY, Study
from fastdime.data.table import SPLIT
from fastdime.errors import DataError, expected

ENTRIES = ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv")
LISTS = {"train_val_list.txt": "train", "test_list.txt": "test"}
NAME, FINDINGS, NOTHING = "Image Index", "Finding Labels", "No Finding"


def official(root: Path) -> Sheet | None:
    """Read the findings as one 0/1 column each and the official split, if they are there."""
    path = next((root / name for name in ENTRIES if (root / name).is_file()), None)
    if path is None:
        return None
    sheet = read_sheet(path)
    for name in (NAME, FINDINGS):
        if name not in sheet.columns:
            got = f"columns {', '.join(map(repr, sheet.columns))}"
            raise DataError(expected(str(path), f"a column {name!r}", got, "get the file again"))
    names = sheet.columns[NAME]
    found = [set(cell.split("|")) for cell in sheet.columns[FINDINGS]]
    columns = {
        finding: ["1" if finding in present else "0" for present in found]
        for finding in sorted(set().union(*found) - {NOTHING, ""})
    }
    splits = _splits(root)
    return Sheet(
        path, {IMAGE: names, **columns, SPLIT: [splits.get(name, "") for name in names]}, sheet.lines
    )


def _splits(root: Path) -> dict[str, str]:
    return {
        words[0]: split
        for name, split in LISTS.items()
        if (root / name).is_file()
        for words in read_words(root / name)
    }


def patient(name: str) -> str:
    """Return the patient of an image: the number before the underscore."""
    return name.partition("_")[0]


STUDY = Study(
    task="Pneumothorax",
    shortcut="Drain",
    form=XRAY,
    annotations="nih_drain_meta.csv",
    patient=patient,
    official=official,
)
