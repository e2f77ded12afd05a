"""hwbench predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    space: options.Space,
    arch: Annotated[Path, typer.Option("--arch", help="Architecture file, search.json or a search's folder.")],
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    statistic: options.Statistic = "min",
    json: options.Json = False,
) -> None:
    """Predict the latency of every architecture of a file."""
    import hwbench

    answers = hwbench.predict(space, arch, device, runtime, options.setting(dtype, batch, threads), workspace, statistic)
    first = answers[0]
    if json:
        shared = {key: first[key] for key in ("device", "runtime", "setting", "statistic", "source")}
        console.emit_json({"space": space, **shared, "predictions": answers})
        return
    rows = [
        {"#": i, f"latency ms ({statistic})": a["latency_ms"], "upper ms": a["upper_ms"], "coverage": f"{a['coverage']:.0%}"}
        for i, a in enumerate(answers)
    ]
    typer.echo(f"from {first['source']}")
    console.table(f"{space} on {first['device']} / {runtime} / {first['setting']}", rows)
