"""The dose and response of `fastdime validate`, read from dose.json."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from fastdime.configs import checked
from fastdime.errors import DataError, expected

DOSE_FILE = "dose.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class DoseRow(_Part):
    """What networks of one planted correlation did, with the spread over seeds and what is known exactly."""

    k: float
    mad: float | None = None
    mad_sd: float | None = None
    mad_true: float | None = None
    ideal_mad: float | None = None


class Dose(_Part):
    """All correlations, and the p-value of a trend."""

    rows: tuple[DoseRow, ...] = Field(min_length=1)
    trend_p: float | None = None


def read_dose(run: Path) -> Dose | None:
    """Read dose.json of a folder; None without one."""
    path = run / DOSE_FILE
    if not path.is_file():
        return None
    return checked(Dose, json_of(path), str(path), DataError)


def json_of(path: Path) -> object:
    """Read a JSON file, whatever it holds."""
    try:
        found: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        got = " ".join(str(error).split())[:120]
        raise DataError(expected(str(path), "JSON", got, "make it again")) from None
    return found
