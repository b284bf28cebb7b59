"""What is to be scored, and with what."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fastdime.scoring.catalogue import Subset


class ScoreRequest(BaseModel):
    """Everything about a score that is not the pictures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metrics: tuple[str, ...] | None = Field(None, description="names; the usual ones unless given")
    protocol: Literal["default", "published"] = Field(
        "default", description="which pairs each metric is over"
    )
    subset: Subset | None = Field(None, description="the pairs for all metrics but the flip rate")
    classifier: str | None = Field(None, description="who judges; that of the run unless given")
    target: str = Field("flip", description="class wanted, for two folders: flip, a class or column:COLUMN")
    labels: Path | None = Field(None, description="table with a row for each pair")
    label: str | None = Field(None, description="column with the true class")
    shortcut: str | None = Field(None, description="column that says whether the shortcut is there")
    group: str | None = Field(None, description="column of patients; `patient` if there is one")
    features: str = Field("efficientnet-lite0", description="network for fid, sfid, kid and fs")
    face: str | None = Field(None, description="network for fva")
    attributes: str | None = Field(None, description="network for mnac and cd, or `measured`")
    attribute_names: tuple[str, ...] = Field((), description="label columns of its outputs, for cd")
    query: str | None = Field(None, description="the attribute that was to change, for cd")
    lpips: tuple[Path, Path] | None = Field(None, description="trunk and linear weights")
    truth: Path | None = Field(None, description="phantom set that was explained; found unless given")
    batch_size: int = Field(32, ge=1, description="pairs at a time")
    device: str = Field("cpu", description="of the networks")
    seed: int = Field(0, ge=0, description="of resampling")
    resamples: int = Field(2000, ge=100, description="of the bootstrap")
    repeats: int = Field(10, ge=1, description="of the halves of sfid")
