"""The command that writes a report."""

from pathlib import Path
from typing import Annotated

import typer

from fastdime.terminal import interrupt_later, print_numbers, progress_of

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def report(
    run: Annotated[Path, typer.Argument(help="Folder of `fastdime audit`, or run folder of explain.")],
    out: Annotated[Path | None, typer.Option(help="HTML file to write; report.html in the folder.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Images shown for each shortcut.")] = 12,
    as_json: Json = False,
) -> None:
    """Write one HTML file that says and shows what an audit found; it needs no network."""
    with interrupt_later():
        from fastdime.report.page import write_report

    with progress_of("images") as progress:
        done = write_report(run, out, limit, progress)
    numbers = {
        "report": str(done.path),
        "bytes": done.bytes,
        "shown": done.shown,
        "images": done.images,
        "missing_pictures": done.missing,
    }
    print_numbers(numbers, as_json)
