"""hwbench measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    models: Annotated[list[Path], typer.Argument(help="ONNX files with fixed shapes; several are interleaved.")],
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    workspace: options.Workspace = options.HERE,
    precision: options.Precision = 0.01,
    max_processes: options.MaxProcesses = 8,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure any ONNX file: fresh processes, interleaved rounds, minimum and median with their noise."""
    import dataclasses

    import hwbench
    from hwbench.profiler import NETWORK_POLICY

    policy = dataclasses.replace(
        NETWORK_POLICY, precision=precision, max_processes=max_processes, min_processes=min(3, max_processes), seed=seed
    )
    with console.progress("measuring") as tick:
        done = hwbench.measure(models, device, runtime, options.setting("fp32", 1, threads), workspace, policy, tick)
    if json:
        console.emit_json(done if len(done) > 1 else done[0])
        return
    rows = [
        {
            "model": d["model"],
            "min ms": d["latency_min_ms"],
            "min spread %": 100 * d["min_spread"],
            "median ms": d["latency_median_ms"],
            "median spread %": 100 * d["median_spread"],
            "first run ms": d["first_run_ms"],
            "load ms": d["load_ms"],
            "processes": d["processes"],
            "samples": d["samples"],
        }
        for d in done
    ]
    console.table(f"{runtime}, {threads} thread(s), back-to-back", rows)
