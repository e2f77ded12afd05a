"""hwbench sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    space: options.Space,
    n: Annotated[int, typer.Option("--n", help="How many.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="Architecture file to write.")] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Draw random architectures of a space, uniform over gene values."""
    import hwbench

    with console.progress("drawing"):
        drawn = hwbench.sample(space, n, seed=seed, out=out)
    if json or out is None:
        console.emit_json(drawn.document())
    else:
        typer.echo(f"{len(drawn)} architectures of {space} -> {out}")
