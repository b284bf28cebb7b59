"""What an audit is asked for."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from fastdime.errors import InputError, expected

METHOD = "fastdime-null"


class AuditRequest(BaseModel):
    """Everything but the models that are audited.

    Attributes:
        data: table of images with a column for each shortcut.
        shortcuts: bundle by column of the table; None = no bundle, answers come from elsewhere.
        task: column of the task, for AUROC and strata.
        by: columns whose values are told apart.
        method: how counterfactuals are made.
        oracle: who says whether the shortcut went or came; the bundle's own oracle, or its guide.
        controls: on how many images the null edit and the second seed are made; None = on all.
        margin: an effect below it is of no matter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path
    shortcuts: dict[str, str | None] = Field(min_length=1)
    task: str | None = None
    group: str | None = None
    by: tuple[str, ...] = ()
    where: str | None = None
    limit: int | None = Field(None, ge=1)
    root: Path | None = None
    size: int | None = Field(None, ge=8)
    convert: bool = False
    method: str = METHOD
    settings: dict[str, object] = {}
    oracle: str | None = None
    controls: int | None = Field(None, ge=0)
    pictures: int = Field(8, ge=0, description="images with SmoothGrad and path, for the report")
    margin: float = Field(0.05, gt=0)
    alpha: float = Field(0.05, gt=0, lt=0.5)
    seed: int = Field(0, ge=0)
    batch_size: int | None = Field(None, ge=1)
    device: str = "cpu"


def parse_shortcuts(texts: list[str], bundle: str | None) -> dict[str, str | None]:
    """Read COLUMN or COLUMN=BUNDLE, as often as given.

    >>> parse_shortcuts(["ruler", "ink=ink-bundle"], "skin-ruler")
    {'ruler': 'skin-ruler', 'ink': 'ink-bundle'}
    """
    found: dict[str, str | None] = {}
    for text in texts:
        column, _, own = text.partition("=")
        if not column or column in found:
            got = "none" if not column else f"{column!r} twice"
            raise InputError(expected("--shortcut", "a column of the table, each once", got))
        found[column] = own or bundle
    return found
