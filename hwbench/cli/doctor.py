"""hwbench doctor."""

from __future__ import annotations

from pathlib import Path

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(workspace: options.Workspace = options.HERE, wide: options.Wide = False, json: options.Json = False) -> None:
    """Tell what is installed, what is missing for which part, and the command that gets it; changes nothing.

    Exits with 1 where something is missing that hwbench cannot do without.
    """
    from dataclasses import asdict

    import hwbench

    found = hwbench.doctor(workspace)
    if json:
        console.emit_json({**asdict(found), "works": found.works})
    else:
        typer.echo(f"hwbench {found.version} in {found.folder}\nPython {found.python}")
        typer.echo(f"device {found.device} ({found.cpu}, {found.cores} cores): {found.known}")
        typer.echo(f"cache {found.cache}: {sum(found.cache_bytes.values()) / 1e6:.0f} MB")
        for name, size in found.cache_bytes.items():
            typer.echo(f"  {name}: {size / 1e6:.0f} MB")
        columns = {"name": "part", "state": "state", "found": "found", "needed_for": "needed for"}
        home = str(Path.home())
        rows = [{**asdict(each), "found": each.found.replace(home, "~")} for each in found.parts]
        console.table("Parts", rows, columns, wide)
        if missing := [each for each in found.parts if each.get]:
            typer.echo("To get what is missing, where it is wanted:")
            for each in missing:
                typer.echo(f"  {each.name}: {each.get}")
        console.say("hwbench works here." if found.works else "hwbench does not work here: see above.")
    if not found.works:
        raise typer.Exit(1)
