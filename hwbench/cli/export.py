"""hwbench export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    arch: Annotated[Path, typer.Option("--arch", help="Architecture file, or a search's folder (0 is the winner).")],
    out: Annotated[Path, typer.Option("--out", help="ONNX file to write.")],
    space: Annotated[
        str | None, typer.Option("--space", help="Search space, where --arch does not say it.", callback=options.own_space)
    ] = None,
    index: Annotated[int, typer.Option("--index", help="Which architecture of the file.")] = 0,
    batch: options.Batch = 1,
    weights: Annotated[Path | None, typer.Option("--weights", help="Trained weights, .safetensors by parameter name.")] = None,
    json: options.Json = False,
) -> None:
    """Write an architecture as one whole ONNX model."""
    import hwbench

    with console.progress("exporting"):
        done = hwbench.export(space, arch, out, index=index, batch=batch, weights=weights)
    if json:
        console.emit_json(done)
    else:
        typer.echo(f"{done['path']}: {done['bytes'] / 1e6:.1f} MB, weights: {done['weights']}")
