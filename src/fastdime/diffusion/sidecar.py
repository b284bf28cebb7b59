"""What weights cannot tell: from a named architecture, or from a small JSON beside the file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveFloat, PositiveInt

from fastdime.configs import checked, read_json
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Prediction, Variance
from fastdime.diffusion.schedule import Schedule
from fastdime.diffusion.unet import Heads, Layout
from fastdime.errors import CheckpointError, InputError, expected, unknown

# guided-diffusion writes -1 for "not given".
Count = Annotated[PositiveInt | None, BeforeValidator(lambda value: None if value == -1 else value)]
Counts = Annotated[
    PositiveInt | list[PositiveInt] | None, BeforeValidator(lambda value: None if value == -1 else value)
]


class Sidecar(BaseModel):
    """The JSON beside a checkpoint; the fields have the names of the programs that made the checkpoints.

    >>> Sidecar(num_heads=4, diffusion_steps=500).noise_schedule is None
    True
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str | None = None
    image_size: PositiveInt | None = None
    num_heads: Count = None
    num_head_channels: Counts = None
    use_new_attention_order: bool | None = None
    norm_num_groups: PositiveInt | None = None
    norm_eps: PositiveFloat | None = None
    diffusion_steps: PositiveInt | None = None
    noise_schedule: Literal["linear", "scaled_linear", "cosine"] | None = None
    beta_start: PositiveFloat | None = None
    beta_end: PositiveFloat | None = None
    prediction: Prediction | None = None
    variance: Variance | None = None

    def heads(self, path: Path) -> Heads:
        """Return the attention heads: a number of them, or their width."""
        if isinstance(self.num_head_channels, list):
            raise CheckpointError(expected(f"num_head_channels for {path.name}", "one number", "a list"))
        if self.num_heads and self.num_head_channels:
            wanted = "num_heads or num_head_channels in the JSON beside it"
            raise CheckpointError(expected(path.name, wanted, "both", "take one of them out"))
        return Heads(self.num_heads, self.num_head_channels)

    def schedule(self) -> Schedule:
        """Return the chain the model was trained on."""
        steps = self.diffusion_steps or 0
        return schedule_from(self.noise_schedule or "linear", steps, self.beta_start, self.beta_end)

    def require(self, path: Path, *names: str) -> None:
        """Refuse to go on without some fields; a head width stands for a number of heads."""
        missing = [name for name in names if getattr(self, name) is None]
        if self.num_head_channels and "num_heads" in missing:
            missing.remove("num_heads")
        if missing:
            content = json.dumps({name: EXAMPLES[name] for name in missing})
            remedy = f"write for example {content} to {path.stem}.json beside it, or name an architecture"
            wanted = f"{' and '.join(missing)}, which the weights do not tell"
            raise CheckpointError(expected(path.name, wanted, "nothing", remedy))


EXAMPLES: Mapping[str, object] = {
    "num_heads": 4,
    "diffusion_steps": 1000,
    "num_head_channels": 64,
    "norm_num_groups": 32,
}


def schedule_from(kind: str, steps: int, start: float | None, end: float | None) -> Schedule:
    """Return the schedule of one of the usual kinds.

    Args:
        start, end: first and last beta; without them, those that are usual for the kind.
    """
    if kind == "cosine":
        return sch.cosine(steps)
    if kind == "scaled_linear":
        return sch.scaled_linear(steps, start or 0.00085, end or 0.012)
    usual = sch.linear(steps)
    betas = np.linspace(start or usual.betas[0], end or usual.betas[-1], steps)
    # The usual chain keeps its name: it can then be rebuilt with another length.
    return usual if np.allclose(betas, usual.betas, rtol=1e-9, atol=0) else sch.from_betas(betas)


@dataclass(frozen=True)
class Architecture:
    """A published model, known by name.

    Attributes:
        form: the program whose checkpoints these are.
        known: what the weights do not tell.
        layout: what they must tell; None = anything.
    """

    form: Literal["guided-diffusion", "medical"]
    known: Sidecar
    layout: Layout | None = None


ARCHITECTURES: Mapping[str, Architecture] = {
    # DiME's CelebA model; a public copy of its weights: Hugging Face, guillaumejs2403/DiME.
    "dime-celeba": Architecture(
        "guided-diffusion",
        Sidecar(image_size=128, num_heads=4, use_new_attention_order=False, diffusion_steps=500),
        Layout(
            in_channels=3,
            out_channels=6,
            widths=(128, 128, 256, 384, 512),
            res_blocks=2,
            attention=(False, False, True, True, True),
            updown=True,
            scale_shift=True,
            time_width=512,
        ),
    ),
    "medical": Architecture("medical", Sidecar(num_heads=4, diffusion_steps=1000, variance="fixed_large")),
}


def architecture_named(name: str) -> Architecture:
    """Return a published model by its name."""
    if name not in ARCHITECTURES:
        raise InputError(unknown("architecture", name, ARCHITECTURES))
    return ARCHITECTURES[name]


def read_sidecar(path: Path) -> Sidecar:
    """Read the JSON beside a checkpoint: model.pt.json or model.json; an empty one if there is none."""
    for beside in (path.with_name(f"{path.name}.json"), path.with_suffix(".json")):
        if beside.is_file():
            return checked(Sidecar, read_json(beside), f"{beside.name}, field", CheckpointError)
    return Sidecar()


def merged(path: Path, beside: Sidecar, known: Sidecar) -> Sidecar:
    """Join what the JSON says with what is known of the architecture; they must not contradict each other."""
    said, sure = beside.model_dump(exclude_none=True), known.model_dump(exclude_none=True)
    for name in said.keys() & sure.keys():
        if said[name] != sure[name]:
            wanted = f"{name} {sure[name]}, as the architecture has it"
            raise CheckpointError(
                expected(f"JSON beside {path.name}", wanted, said[name], "correct one of them")
            )
    return Sidecar(**(sure | said))
