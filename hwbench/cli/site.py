"""hwbench site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    reports: Annotated[Path, typer.Argument(help="Folder with one folder per study.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write to; an earlier site there is replaced.")] = Path("site"),
    workspace: options.Workspace = options.HERE,
    json: options.Json = False,
) -> None:
    """Write a site of all reports: gallery, devices, runtimes, strategies, proxies, one search; opens without network."""
    import hwbench

    with console.progress("writing the site") as tick:
        done = hwbench.site(reports, out, workspace, tick)
    if json:
        console.emit_json(done)
        return
    typer.echo(f"{done['pages']} pages of {done['studies']} studies, {done['bytes'] / 1e6:.1f} MB\n{done['index']}")
