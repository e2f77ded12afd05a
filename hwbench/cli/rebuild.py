"""hwbench rebuild."""

from __future__ import annotations

from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    predictors: Annotated[
        list[str] | None, typer.Argument(help="Folders of predictors, or names as listed; all there are by default.")
    ] = None,
    tables: options.Tables = None,
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Build predictors again by the command their cards state, elsewhere, and compare errors and coverage."""
    import hwbench

    with console.progress("building predictors again") as tick:
        rows = hwbench.rebuild(predictors or [], tables, workspace, tick)
    if json:
        console.emit_json(rows)
    else:
        console.table("Rebuilt from their cards", [{k: row[k] for k in ("name", "same", "why")} for row in rows], wide=wide)
    if any(row["same"] is False for row in rows):
        raise typer.Exit(1)
