"""hwbench profile."""

from __future__ import annotations

from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


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
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure every op a space can need into a lookup table; interrupted, it goes on where it was."""
    import dataclasses

    import hwbench
    from hwbench.engine.policy import Policy

    policy = Policy(precision=precision, max_processes=max_processes, min_processes=min(3, max_processes), seed=seed)
    with console.progress("profiling") as tick:
        done = hwbench.profile(space, device, runtime, options.setting(dtype, batch, threads), workspace, level, policy, tick)
    if json:
        console.emit_json(dataclasses.asdict(done))
        return
    typer.echo(
        f"{done.path}: {done.rows} rows for {', '.join(space)}; {done.measured_rows} measured now "
        f"({done.measured_rounds} rounds, {done.seconds:.1f} s), {len(done.noisy)} noisy, {len(done.failed)} failed."
    )
    for key, why in done.failed.items():
        typer.echo(f"  failed: {key}: {why}")
    if done.noisy:
        typer.echo("  noisy rows did not reach the precision; raise --max-processes to measure on, or quiet the machine.")
