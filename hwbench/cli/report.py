"""hwbench report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    result: Annotated[Path, typer.Argument(help="Folder of a verified search.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to; the search's own by default.")] = None,
    space: options.SpaceOfSearch = None,
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Write report.md and a self-contained report.html from stored files."""
    import hwbench

    with console.progress("writing the report"):
        done = hwbench.report(result, out, workspace, space)
    if json:
        console.emit_json(done)
        return
    rows = done["table"]
    if "predicted_ms" not in rows[0]:  # no latency is limited: every cost under its own name
        console.table("Counted" if rows[0]["kept"] is not None else "Not verified", rows, wide=wide)
    elif any(row["kept"] is not None for row in rows):
        console.table("Measured", done["table"], console.MAIN_COLUMNS, wide)
    else:
        console.table("Predicted, not measured", done["table"], console.PREDICTED_COLUMNS, wide)
    typer.echo(f"{done['markdown']}\n{done['html']}")
