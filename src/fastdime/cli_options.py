"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Data = Annotated[str, typer.Option(help="Table (CSV with a column path), folder of images, or one image.")]
Bundle = Annotated[
    str | None,
    typer.Option(help="Folder with denoiser and classifier, or a name: see `fastdime bundle list`."),
]
Denoiser = Annotated[str | None, typer.Option(help="Checkpoint, diffusers folder, or module:function.")]
Classifier = Annotated[str | None, typer.Option(help="Folder, TorchScript, weights, or module:function.")]
Architecture = Annotated[
    str | None, typer.Option(help="Named architecture of the denoiser, e.g. dime-celeba.")
]
Features = Annotated[Path | None, typer.Option(help="VGG-19 weights, for the perceptual loss.")]
Method = Annotated[str | None, typer.Option(help="See `fastdime methods`.", show_default="fastdime")]
Preset = Annotated[str, typer.Option(help="default, celeba or medical.")]
Change = Annotated[list[str] | None, typer.Option("--set", help="A setting, e.g. --set tau=40.")]
Config = Annotated[
    Path | None, typer.Option(help="Method and settings from a file: see `fastdime tune`; --set goes on top.")
]
Target = Annotated[str, typer.Option(help="flip, flip:COLUMN, a class, or column:COLUMN.")]
BatchSize = Annotated[str, typer.Option(help="Images at a time.")]
Size = Annotated[int | None, typer.Option(help="Resize the shorter side to this and crop.")]
Convert = Annotated[bool, typer.Option(help="Turn gray into colour or back where needed.")]
Allow = Annotated[str | None, typer.Option(help="Mask image or column: changes only there.")]
Forbid = Annotated[str | None, typer.Option(help="Mask image or column: no changes there.")]
Limit = Annotated[int | None, typer.Option(help="Only the first so many images.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder that paths in the table are relative to; that of the table.")
]
Seed = Annotated[int, typer.Option(help="Of all noise.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
