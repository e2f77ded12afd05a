"""hwbench profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.device.target import Target
    from hwbench.network.spec import OpSpec
    from hwbench.predictor.active import ActiveResult
    from hwbench.profiler.kernel_detection import DetectedKernels
    from hwbench.profiler.policy import Policy
    from hwbench.profiler.profile import ProfileResult
    from hwbench.profiler.side_by_side import Answer

SHOWN = 5
"""Rows that failed, and rows in doubt, that are listed before the rest is only counted."""

Spaces = Annotated[
    list[str] | None,
    typer.Option("--space", help="Search space, or ./mine.py:MySpace; repeat for several.", callback=options.own_space),
]
Kernels = Annotated[
    int | None, typer.Option("--kernels", help="About so many kernels that ONNX models are made of (1850 are a good table).")
]
Models = Annotated[list[Path] | None, typer.Option("--model", help="The kernels of this ONNX model; repeat for several.")]
Level = Annotated[str, typer.Option("--level", help="blocks (fused), primitives or all.")]
MaxSeconds = Annotated[
    float | None,
    typer.Option("--max-seconds", help="Cap on the time beyond three processes; 0.7 s per row, at least 20, by default."),
]
Again = Annotated[bool, typer.Option("--again", help="Measure anew; older rows stay in the journal (hwbench lut history).")]
Doubtful = Annotated[bool, typer.Option("--doubtful", help="Go on with rows that were left in doubt, up to --max-processes.")]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        help="'local' or a device's name (hwbench device list); several are measured side by side.",
        show_default="local",
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", help="Most useful rows first, until the networks' error is below, e.g. 'p95 error < 3 %'."),
]


def run(
    context: typer.Context,
    space: Spaces = None,
    kernels: Kernels = None,
    model: Models = None,
    shape: options.Shapes = None,
    fill: options.Fills = None,
    device: Devices = None,
    executor: options.Executor = options.USUAL,
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    level: Level = "blocks",
    precision: options.Precision = 0.01,
    max_processes: options.MaxProcesses = 8,
    max_seconds: MaxSeconds = None,
    again: Again = False,
    doubtful: Doubtful = False,
    until: Until = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure every op a space, or any ONNX model, can need into a lookup table; interrupted, it goes on where it was."""
    import dataclasses

    from hwbench.device.target import Target
    from hwbench.predictor.kernel_prices import kernel_setting
    from hwbench.profiler import side_by_side
    from hwbench.profiler.elsewhere import profile_elsewhere
    from hwbench.profiler.policy import Policy
    from hwbench.profiler.profile import needed_specs

    policy = Policy(precision, min(3, max_processes), max_processes, max_seconds=max_seconds, seed=seed)
    setting = options.setting(dtype, batch, threads)
    targets = side_by_side.targets(device or ["local"], lambda name: Target.of(name, runtime, setting, workspace))
    if until is not None:
        _until(until, space or [], targets[0], level, policy, json)
        return
    what = ", ".join(space or []) or ", ".join(path.name for path in model or []) or f"{kernels} kernels asked for"
    with console.progress("profiling") as tick:
        if space:
            specs = needed_specs(space, level)
        else:
            with options.runnable(context):
                specs = _kernels(kernels, model or [], targets[0], options.shapes(shape), options.fills(fill))
            targets = [dataclasses.replace(each, setting=kernel_setting(each.setting)) for each in targets]
        work = side_by_side.Work(specs, policy, again, doubtful)
        alone = len(targets) == 1 and executor == options.USUAL
        if alone:
            done = work.done(targets[0], tick)
        elif executor == options.USUAL:
            answers = side_by_side.profile_side_by_side(work, targets)
        else:
            answers = profile_elsewhere(work, targets, executor)
    if not alone:
        _say_each(answers, what, context, policy, json)
        return
    if json:
        console.emit_json(dataclasses.asdict(done))
        return
    _say(done, what)
    if done.doubtful:
        _say_how_to_go_on(context, policy)


def _say_each(answers: dict[str, Answer], what: str, context: typer.Context, policy: Policy, json: bool) -> None:
    """What became of every device; the exit code is that of the first that failed."""
    from hwbench.profiler.side_by_side import Failed

    failed = {device: answer for device, answer in answers.items() if isinstance(answer, Failed)}
    if json:
        console.emit_json({"devices": answers})
    else:
        for answer in answers.values():
            if not isinstance(answer, Failed):
                _say(answer, what)
        if any(not isinstance(answer, Failed) and answer.doubtful for answer in answers.values()):
            _say_how_to_go_on(context, policy)
    for device, answer in failed.items():
        typer.echo(f"hwbench: {device}: {answer.message}", err=True)
    if failed:
        raise typer.Exit(next(iter(failed.values())).exit_code)


def _until(goal: str, space: list[str], target: Target, level: str, policy: Policy, json: bool) -> None:
    """Most useful rows first, until networks of the space are known well enough."""
    import dataclasses

    from hwbench.predictor.active import profile_until

    with console.progress("profiling") as tick:
        done = profile_until(goal, space, target, level, policy, tick)
    if json:
        console.emit_json(dataclasses.asdict(done))
        return
    last = done.steps[-1].expected
    console.say(
        f"{done.path}: {done.usable_rows} of {done.rows} rows measured ({done.measured_rows} now, {done.seconds:.1f} s); error "
        f"of network sums estimated at {last['mean']:.2%} mean, {last['p95']:.2%} p95: "
        f"{done.goal} {'reached' if done.reached else 'NOT reached, no row is left'}."
    )
    _say_doubts(done)


def _say(done: ProfileResult, what: str) -> None:
    console.say(
        f"{done.path}: {done.rows} rows for {what}; {done.measured_rows} measured now "
        f"({done.measured_rounds} bursts, {done.seconds:.1f} s), {len(done.doubtful)} doubtful, {len(done.failed)} failed."
    )
    _say_doubts(done)


def _kernels(
    n: int | None, models: list[Path], target: Target, shapes: dict[str, list[int]], fills: dict[str, float]
) -> list[OpSpec]:
    """What is to be measured: a part of the catalogue, or all kernels of some models."""
    from hwbench.core.errors import UsageError
    from hwbench.profiler import kernel_grid

    if n is not None:
        if n < kernel_grid.LEAST:
            raise UsageError(f"--kernels {n} is too few; every kind of kernel needs some: at least {kernel_grid.LEAST}.")
        return kernel_grid.catalogue(n)
    kernels = {spec.key: spec for detected in _detected(models, target, shapes, fills) for spec in detected.specs}
    if not kernels:
        raise UsageError(f"No node of {', '.join(map(str, models))} is a kernel that can be measured alone.")
    return [kernels[key] for key in sorted(kernels)]


def _detected(
    models: list[Path], target: Target, shapes: dict[str, list[int]], fills: dict[str, float]
) -> list[DetectedKernels]:
    """The kernels of every model; one refusal names the open inputs of all, and nodes that are no kernels are told."""
    from hwbench.profiler.kernel_detection import detect
    from hwbench.profiler.onnx_inputs import OpenInputs, each_own

    found, open_inputs = [], []
    for path, own_shapes, own_fills in each_own(models, shapes, fills):
        try:
            found.append(detect(path, target.runtime, target.setting, own_shapes, own_fills))
        except OpenInputs as error:
            open_inputs.append(error)
    if open_inputs:
        raise OpenInputs.together(open_inputs)
    for each in found:
        if each.unknown:
            first = each.unknown[0]
            said = f"{each.path}: {len(each.unknown)} nodes are no kernels that can be measured alone"
            typer.echo(f"{said}; first '{first.name}': {first.why}.", err=True)
    return found


def _say_doubts(done: ProfileResult | ActiveResult) -> None:
    """The rows that failed and the worst of those in doubt, and where the others are."""
    from hwbench.core.command import command

    for word, rows in (("failed: ", done.failed), ("", done.doubtful)):
        for key, why in list(rows.items())[:SHOWN]:
            console.say(f"  {word}{key}: {why}")
    if hidden := sum(max(len(rows) - SHOWN, 0) for rows in (done.failed, done.doubtful)):
        typer.echo(f"  and {hidden} more: {command('lut show', done.path, doubtful=True)}")
    if done.doubtful:
        console.say("  hwbench device check tells what disturbs.")


def _say_how_to_go_on(context: typer.Context, policy: Policy) -> None:
    """The command that takes more processes of the rows in doubt."""
    from hwbench.cli._modes import RANGES
    from hwbench.core.command import hint

    line = options.typed(context, without=("again", "doubtful", "max_processes"))
    most = min(2 * policy.max_processes, int(RANGES["max_processes"].most))
    typer.echo(f"  {hint(f'{line} --max-processes {most} --doubtful', start='To go on with them, run')}")
