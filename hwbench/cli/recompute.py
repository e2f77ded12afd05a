"""hwbench recompute."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options
from hwbench.core.errors import DataError

FEW = 8
"""Numbers that are told of those that share a reason; --json tells all."""


def run(
    reports: Annotated[Path, typer.Argument(help="Folder with one folder per study; README.md beside it is read, too.")],
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Compute every published number again from stored data; fails on a wrong one, and on one that nothing stands behind."""
    import hwbench

    with console.progress("documents") as tick:
        done = hwbench.recompute(reports, workspace, tick)
    if json:
        console.emit_json(done)
    else:
        _say(done, wide)
    if done["wrong"]:
        raise typer.Exit(DataError.exit_code)


def _say(done: dict[str, Any], wide: bool) -> None:
    columns = ("document", "numbers", "written again", "stated", "given", "lost")
    rows = [{column: each.get(column, 0) for column in columns} for each in done["documents"]]
    console.table("Published numbers", rows, wide=wide)
    for (document, reason), entries in groupby(done["lost"], lambda entry: (entry["document"], entry["reason"])):
        numbers = [entry["number"] for entry in entries]
        more = f" and {len(numbers) - FEW} more" if len(numbers) > FEW else ""
        typer.echo(f"{document}: {', '.join(numbers[:FEW])}{more}: not recomputable: {reason}")
    for note in done["notes"]:
        typer.echo(f"note: {note}")
    for entry in done["wrong"]:
        where = entry["document"] if entry["line"] is None else f"{entry['document']}:{entry['line']}"
        typer.echo(f"{where}: {entry['why']}: {entry['text']}")
        if entry.get("nearest"):
            typer.echo(f"    nearest: {entry['nearest']}")
    typer.echo(
        f"{done['numbers']} numbers in {len(done['documents'])} documents: {done['recomputed']} recomputed, {done['given']} "
        f"chosen by a study, {len(done['lost'])} not recomputable, {len(done['wrong'])} lines wrong"
    )
