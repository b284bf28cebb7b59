"""How long and how carefully to train."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]


class TrainSettings(BaseModel):
    """Settings of the loop; what is learned is the task's business."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: Count = Field(10_000, description="updates of the weights")
    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(
        32, description="images of one update, for each process"
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(5e-4, description="at its highest")
    optimizer: Literal["adamw", "adam", "muon"] = Field(
        "adamw", description="AdamW, Adam with decay in the loss, or Muon, orthogonal steps for matrices"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.01, description="of the optimizer")
    warmup: Annotated[int, Field(ge=0)] = Field(300, description="updates until the rate is at its highest")
    decay_to: Annotated[float, Field(ge=0, le=1)] = Field(
        0.02, description="share of the rate left at the end"
    )
    clip: Annotated[float, Field(gt=0)] | None = Field(
        1.0, description="largest norm of the gradient; None: any"
    )
    ema: Annotated[float, Field(ge=0, lt=1)] = Field(0.999, description="decay of the averaged weights")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(0, description="of weights, order and noise")
    validate_every: Count = Field(500, description="updates between validations")
    patience: Count | None = Field(None, description="validations without gain before it stops; None: never")
    log_every: Count = Field(20, description="updates between lines of the log")
    sample_every: Count | None = Field(
        None, description="updates between pictures; None: one at each validation"
    )
    checkpoint_seconds: Annotated[float, Field(gt=0)] = Field(60, description="between checkpoints")
    hours: Annotated[float, Field(gt=0)] | None = Field(
        None, description="end at the first validation after this time, with the best weights so far"
    )
    precision: Literal["no", "bf16", "fp16"] = Field(
        "no", description="mixed precision, where the device has it"
    )


# They change nothing in the weights, so a run may go on with others.
FREE = {"checkpoint_seconds", "sample_every", "hours"}
