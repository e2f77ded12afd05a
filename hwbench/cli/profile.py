"""hwbench profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.network.spec import OpSpec, Setting
    from hwbench.predictor.active import ActiveResult
    from hwbench.profiler.profile import ProfileResult

SHOWN = 8
"""Doubtful rows listed before the rest is only counted."""


def run(
    space: Annotated[list[str] | None, typer.Option("--space", help="Search space; repeat for several.")] = None,
    kernels: Annotated[
        int | None,
        typer.Option("--kernels", help="About so many kernels that ONNX models are made of (1440 are a good table)."),
    ] = None,
    model: Annotated[
        list[Path] | None, typer.Option("--model", help="The kernels of this ONNX model; repeat for several.")
    ] = None,
    shape: options.Shapes = None,
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
    until: Annotated[
        str | None,
        typer.Option("--until", help="Most useful rows first, until the networks' error is below, e.g. 'p95 error < 3 %'."),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure every op a space, or any ONNX model, can need into a lookup table; interrupted, it goes on where it was."""
    import dataclasses

    import hwbench
    from hwbench.core.errors import UsageError
    from hwbench.profiler.policy import Policy

    policy = Policy(
        precision=precision,
        max_processes=max_processes,
        min_processes=min(3, max_processes),
        max_seconds=max_seconds,
        seed=seed,
    )
    setting = options.setting(dtype, batch, threads)
    if sum(given not in (None, []) for given in (space, kernels, model)) != 1:
        raise UsageError("Give one of --space SPACE, --kernels 1440 and --model MODEL.onnx: what is to be measured.")
    if until is not None:
        from hwbench.predictor.active import profile_until

        if not space:
            raise UsageError("--until judges networks of a space; give --space.")
        if again:
            raise UsageError("--until measures what is missing, --again measures all anew; give one of them.")
        with console.progress("profiling") as tick:
            active = profile_until(until, space, device, runtime, setting, workspace, level, policy, tick)
        _say_active(active, json)
        return
    with console.progress("profiling") as tick:
        if space:
            done = hwbench.profile(space, device, runtime, setting, workspace, level, policy, tick, again)
        else:
            from hwbench.profiler.profile import profile_specs

            specs = _kernels(kernels, model or [], runtime, setting, options.shapes(shape))
            done = profile_specs(specs, device, runtime, setting, workspace, policy, tick, again)
    if json:
        console.emit_json(dataclasses.asdict(done))
        return
    typer.echo(
        f"{done.path}: {done.rows} rows for {_what(space, kernels, model)}; {done.measured_rows} measured now "
        f"({done.measured_rounds} bursts, {done.seconds:.1f} s), {len(done.doubtful)} doubtful, {len(done.failed)} failed."
    )
    _say_doubts(done)


def _what(space: list[str] | None, kernels: int | None, model: list[Path] | None) -> str:
    return ", ".join(space or []) or ", ".join(path.name for path in model or []) or f"{kernels} kernels asked for"


def _kernels(n: int | None, models: list[Path], runtime: str, setting: Setting, shapes: dict[str, list[int]]) -> list[OpSpec]:
    """What is to be measured: a part of the catalogue, or all kernels of some models."""
    from hwbench.core.errors import DataError, UsageError
    from hwbench.profiler import kernel_detection, kernel_grid

    if n is not None:
        if n < kernel_grid.LEAST:
            raise UsageError(f"--kernels {n} is too few; every kind of kernel needs some: at least {kernel_grid.LEAST}.")
        return kernel_grid.catalogue(n)
    found: dict[str, OpSpec] = {}
    for path in models:
        parts = kernel_detection.dissect(path, runtime, setting, shapes)
        if parts.unknown:
            node, why = next(iter(parts.unknown.items()))
            raise DataError(f"{path}: {len(parts.unknown)} nodes are no plain kernels; first '{node}': {why}.")
        found.update({spec.key: spec for _, spec in parts.layers})
    return [found[key] for key in sorted(found)]


def _say_active(done: ActiveResult, json: bool) -> None:
    import dataclasses

    if json:
        console.emit_json(dataclasses.asdict(done))
        return
    last = done.steps[-1].expected
    typer.echo(
        f"{done.path}: {done.usable_rows} of {done.rows} rows measured ({done.measured_rows} now, {done.seconds:.1f} s); error "
        f"of network sums estimated at {last['mean']:.2%} mean, {last['p95']:.2%} p95: "
        f"{done.goal} {'reached' if done.reached else 'NOT reached, no row is left'}."
    )
    _say_doubts(done)


def _say_doubts(done: ProfileResult | ActiveResult) -> None:
    for key, why in done.failed.items():
        typer.echo(f"  failed: {key}: {why}")
    for key, why in list(done.doubtful.items())[:SHOWN]:
        typer.echo(f"  {key}: {why}")
    if len(done.doubtful) > SHOWN:
        typer.echo(f"  and {len(done.doubtful) - SHOWN} more: hwbench lut show {done.path}")
    if done.doubtful:
        typer.echo("  Measure on with a higher --max-processes, or see what disturbs: hwbench device check")
