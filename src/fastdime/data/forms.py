"""The form that images are brought into: size, channels, and how they become a square."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Fit = Literal["crop", "stretch"]
Smooth = Literal["bilinear", "bicubic"]


class Form(BaseModel):
    """What `fastdime.data.io.read` is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Annotated[int, Field(ge=8)] = Field(description="pixels of a side")
    channels: Literal[1, 3] | None = Field(None, description="1 or 3; None: as the first image has")
    convert: bool = Field(False, description="turn gray into colour or back, instead of refusing it")
    fit: Fit = Field("crop", description="crop the centre, or stretch both sides")
    smooth: Smooth = Field("bilinear", description="bilinear or bicubic, both antialiased")
