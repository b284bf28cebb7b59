"""Commands that make and show data sets."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fastdime.errors import InputError
from fastdime.terminal import progress_of

app = typer.Typer(help="Make data sets with exact truth, and look at them.")


@app.command()
def phantom(
    name: Annotated[str, typer.Argument(help="chest-pacemaker, chest-drain, skin-ruler or face-smile.")],
    out: Annotated[Path, typer.Option(help="Folder for images, table.csv and truth.")],
    n: Annotated[int, typer.Option(help="How many images.")] = 200,
    k: Annotated[str, typer.Option(help="Correlation of shortcut and task: 100, 75, 50, or none.")] = "none",
    seed: Annotated[int, typer.Option(help="Of the subjects; another seed is other people.")] = 0,
    size: Annotated[int, typer.Option(help="Pixels of a side, 32 to 224.")] = 64,
    dial: Annotated[list[str] | None, typer.Option(help="A dial, e.g. --dial contrast=0.5.")] = None,
) -> None:
    """Write synthetic images whose exact counterfactual is known."""
    from fastdime.configs import checked
    from fastdime.data.phantoms.design import Dials
    from fastdime.data.phantoms.write import PhantomSet, write_phantom

    dials = checked(Dials, _numbers(dial or []), "dials", InputError)
    with progress_of("images") as progress:
        print(write_phantom(out, PhantomSet(name, n, k, seed, size, dials), progress))


def _numbers(items: list[str]) -> dict[str, Any]:
    pairs = [item.partition("=") for item in items]
    return {name: value for name, _, value in pairs}


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Folder written by `fastdime data phantom`.")],
    out: Annotated[Path, typer.Option(help="PNG to write.")],
    limit: Annotated[int, typer.Option(min=1, help="How many images.")] = 12,
) -> None:
    """Draw the images of a phantom with their truth."""
    from fastdime.data.phantoms.show import draw_set

    print(draw_set(folder, out, limit))
