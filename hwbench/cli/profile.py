"""hwbench profile."""

from __future__ import annotations

from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

SHOWN = 8
"""Doubtful rows listed before the rest is only counted."""


def run(
    space: options.Spaces,
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    level: Annotated[str, typer.Option("--level", help="blocks (fused), primitives or all.")] = "blocks",
    precision: options.Precision = 0.01,
    max_processes: options.MaxProcesses = 8,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", help="Cap on the time beyond three processes; 0.7 s per row, at least 20, by default."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure anew; older rows stay in the journal (hwbench lut history).")
    ] = False,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure every op a space can need into a lookup table; interrupted, it goes on where it was."""
    import dataclasses

    import hwbench
    from hwbench.engine.policy import Policy

    policy = Policy(
        precision=precision,
        max_processes=max_processes,
        min_processes=min(3, max_processes),
        max_seconds=max_seconds,
        seed=seed,
    )
    setting = options.setting(dtype, batch, threads)
    with console.progress("profiling") as tick:
        done = hwbench.profile(space, device, runtime, setting, workspace, level, policy, tick, again)
    if json:
        console.emit_json(dataclasses.asdict(done))
        return
    typer.echo(
        f"{done.path}: {done.rows} rows for {', '.join(space)}; {done.measured_rows} measured now "
        f"({done.measured_rounds} bursts, {done.seconds:.1f} s), {len(done.doubtful)} doubtful, {len(done.failed)} failed."
    )
    for key, why in done.failed.items():
        typer.echo(f"  failed: {key}: {why}")
    for key, why in list(done.doubtful.items())[:SHOWN]:
        typer.echo(f"  {key}: {why}")
    if len(done.doubtful) > SHOWN:
        typer.echo(f"  and {len(done.doubtful) - SHOWN} more: hwbench lut show {done.path}")
    if done.doubtful:
        typer.echo("  Measure on with a higher --max-processes, or see what disturbs: hwbench device check")
