"""hwbench quickstart."""

from __future__ import annotations

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options
from hwbench.core.progress import watched


def run(
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    workspace: options.Workspace = options.HERE,
    seed: options.Seed = 0,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """The whole flow on this machine or a device of yours: table, predictor, search, measured winner, report."""
    import hwbench

    def say(text: str) -> None:
        typer.echo(text, err=json)

    with watched():  # all steps are one work: Ctrl-C tells what each of them leaves
        done = hwbench.quickstart(workspace, seed, say, console.progress, device, runtime)
    if json:
        console.emit_json(done)
        return
    console.table("Measured", done["table"], console.MAIN_COLUMNS, wide)
    console.say(done["answer"])
    typer.echo(f"report: {done['html']}")
