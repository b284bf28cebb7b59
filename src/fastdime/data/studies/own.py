"""Images of one's own, brought into the form that every command takes: a table of one's own, or a folder."""

from dataclasses import dataclass, replace
from pathlib import Path

from fastdime.data.folders import image_names
from fastdime.data.studies.study import Joined, with_roles
from fastdime.data.table import PATIENT, Table, read_table
from fastdime.errors import DataError, expected


@dataclass(frozen=True)
class ColumnNames:
    """What the columns of a table are called.

    Attributes:
        path: names the image files, relative to the root.
        id: names the images; it need not be there.
        group: names the patient, or what else must not be parted by a split.
        task, shortcut: labels of 0, 1 or nothing. Of class folders, the task is the folder that is class 1.
    """

    path: str = "path"
    id: str = "id"
    group: str | None = None
    task: str | None = None
    shortcut: str | None = None


NAMES = ColumnNames()


def read_own(root: str | Path, annotations: str | Path | None = None, names: ColumnNames = NAMES) -> Joined:
    """Read a table of images below `root`, or without a table the folder itself.

    Raises:
        DataError: the table or the folder cannot be used; one sentence that says why.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise DataError(expected(str(folder), "a folder with images", "no such folder", "check the path"))
    if annotations is None:
        return Joined(_with_names(_with_class(read_table(folder), names.task), names), (), ())
    table = read_table(
        annotations, path_column=names.path, id_column=names.id, group=names.group, root=folder
    )
    present = [row for row, path in enumerate(table.paths) if path.is_file()]
    if not present:
        wanted = f"images named as in {annotations}, such as {table.paths[0].relative_to(folder)}"
        raise DataError(expected(str(folder), wanted, "no such file", "check ROOT and --path-column"))
    missing = sorted(set(range(len(table))) - set(present))
    known = set(table.paths)
    unnamed = tuple(name for name in image_names(folder) if folder / name not in known)
    absent = tuple(table.paths[row].relative_to(folder).as_posix() for row in missing)
    return Joined(_with_names(table.take(present), names), absent, unnamed)


def _with_class(table: Table, task: str | None) -> Table:
    """Give class folders a label: 1 in the folder that is the task."""
    classes = table.groups.get("class", ())
    if task is None or task not in classes:
        return table
    return replace(table, labels={task: tuple(float(one == task) for one in classes)})


def _with_names(table: Table, names: ColumnNames) -> Table:
    if names.group is not None:
        table = replace(table, groups={**table.groups, PATIENT: table.text(names.group)})
    return with_roles(table, names.task, names.shortcut)
