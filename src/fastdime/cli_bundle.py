"""Commands for bundles."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fastdime.errors import InputError, expected

app = typer.Typer(help="Denoiser and classifier in one folder.")


@app.command("list")
def list_bundles(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the bundles that come with fastdime."""
    from fastdime.bundles import load_info, shipped

    infos = [load_info(name) for name in shipped()]
    if as_json:
        print(json.dumps({"bundles": [info.model_dump(mode="json") for info in infos]}))
        return
    for info in infos:
        print(f"{info.name:<16} {info.size}x{info.size}x{info.channels}  {info.description}")


@app.command()
def pack(
    out: Annotated[Path, typer.Argument(help="New folder.")],
    denoiser: Annotated[Path, typer.Option(help="Diffusers folder, e.g. of `fastdime train denoiser`.")],
    classifier: Annotated[Path, typer.Option(help="Folder, e.g. of `fastdime train guide`.")],
    oracle: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER of a classifier that judges; may be given again.")
    ] = None,
    classes: Annotated[str, typer.Option(help="Names of the classes, with commas between.")] = "",
    description: Annotated[str, typer.Option(help="One line.")] = "",
    settings: Annotated[
        Path | None, typer.Option(help="JSON: what each method needs changed, by its name.")
    ] = None,
    card: Annotated[Path | None, typer.Option(help="Model card, a Markdown file.")] = None,
    half: Annotated[bool, typer.Option(help="Keep 16 bits of each weight, for half the size.")] = False,
) -> None:
    """Put trained models into one folder that `explain --bundle` opens."""
    from fastdime.bundles import BundleInfo, pack_bundle
    from fastdime.configs import checked, read_json
    from fastdime.diffusion.checkpoints import load_denoiser

    opened = load_denoiser(denoiser)
    told = {
        "name": out.name,
        "size": opened.size,
        "channels": opened.channels,
        "description": description,
        "classes": classes.split(",") if classes else [],
        "settings": read_json(settings) if settings else {},
    }
    info = checked(BundleInfo, told, "bundle", InputError)
    parts = {"denoiser": denoiser, "classifier": classifier, **_oracles(oracle or [])}
    pack_bundle(out, info, parts | ({"README.md": card} if card else {}), half=half)
    print(f"{out}: {sum(file.stat().st_size for file in out.rglob('*')) / 1e6:.1f} MB")


def _oracles(items: list[str]) -> dict[str, Path]:
    parts = {}
    for item in items:
        name, _, folder = item.partition("=")
        if not name or not folder:
            raise InputError(expected("--oracle", "NAME=FOLDER", repr(item)))
        parts[f"oracles/{name}"] = Path(folder)
    return parts
