"""hwbench measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.profiler.policy import Policy


Models = Annotated[list[Path], typer.Argument(help="ONNX files; several are interleaved and compared with the first.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="int8 or fp16: measure a converted copy.")]
Scenario = Annotated[
    str, typer.Option("--scenario", help="back-to-back, paced-20ms (idle gap before every run) or cold (caches emptied).")
]
MaxProcesses = Annotated[int | None, typer.Option("--max-processes", help="Cap on fresh worker processes.")]
MaxSeconds = Annotated[
    float | None, typer.Option("--max-seconds", help="No further round starts after that; a comparison has 30 by default.")
]


def run(
    context: typer.Context,
    models: Models,
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.ModelBatch = None,
    dtype: Dtype = None,
    scenario: Scenario = "back-to-back",
    shape: options.Shapes = None,
    fill: options.Fills = None,
    workspace: options.Workspace = options.HERE,
    precision: options.Precision = 0.01,
    max_processes: MaxProcesses = None,
    max_seconds: MaxSeconds = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure any ONNX file: percentiles, minimum, throughput, start-up, memory; several files: which is faster."""
    import hwbench

    with options.runnable(context), console.progress("measuring") as tick:
        done = hwbench.measure(
            models,
            device=device,
            runtime=runtime,
            threads=threads,
            batch=batch,
            dtype=dtype,
            scenario=scenario,
            shapes=options.shapes(shape),
            fills=options.fills(fill),
            workspace=workspace,
            policy=_policy(len(models), precision, max_processes, max_seconds, seed),
            tick=tick,
        )
    if json:
        console.emit_json(done if len(done) > 1 else done[0])
    else:
        _print(done, f"{runtime}, {done[0]['dtype']}, {threads} thread(s), {scenario}")


def _policy(models: int, precision: float, max_processes: int | None, max_seconds: float | None, seed: int) -> Policy:
    """The usual effort for one model or for several, with what the options change."""
    import dataclasses

    from hwbench.profiler.measure import COMPARE_POLICY, MEASURE_POLICY

    usual = MEASURE_POLICY if models == 1 else COMPARE_POLICY
    processes = usual.max_processes if max_processes is None else max_processes
    return dataclasses.replace(
        usual,
        precision=precision,
        max_processes=processes,
        min_processes=min(usual.min_processes, processes),
        max_seconds=usual.max_seconds if max_seconds is None else max_seconds,
        seed=seed,
    )


def _print(done: list[dict[str, Any]], how: str) -> None:
    """A column for every model, their verdicts, and how the others compare with the first."""
    first = done[0]
    names = [str(d["model"]) if len(done) > 1 else "value" for d in done]
    rows = [{"": name, **{f"{i}": _cell(d, name) for i, d in enumerate(done)}} for name in LINES]
    title = f"{first['model'] if len(done) == 1 else 'models'}: {how}"
    console.table(title, rows, {"": "", **{f"{i}": name for i, name in enumerate(names)}})
    for d in done:
        typer.echo(f"{d['model']}: {d['verdict']}: {d['reason']}")
        for note in d["notes"]:
            typer.echo(f"{d['model']}: {note}")
    for d in done[1:]:
        compared = d["compared_with_first"]
        typer.echo(f"{d['model']} against {first['model']}: {compared['answer']}. {compared['reason']}")


LINES = {
    "p50 [ms]": lambda d: f"{d['latency_median_ms']:.4g}{_known(' ({} to {})', d['median_low_ms'], d['median_high_ms'])}",
    "p90 [ms]": lambda d: f"{d['latency_p90_ms']:.4g}",
    "p99 [ms]": lambda d: f"{d['latency_p99_ms']:.4g}",
    "minimum [ms]": lambda d: f"{d['latency_min_ms']:.4g}{_known(' (spread {} %)', 100 * d['min_spread'])}",
    "fastest run [ms]": lambda d: f"{d['latency_fastest_ms']:.4g}",
    "throughput [samples/s]": lambda d: f"{d['throughput_per_s']:.4g}" if d["throughput_per_s"] else "-",
    "session creation [ms]": lambda d: f"{d['session_ms']:.4g}",
    "first run [ms]": lambda d: f"{d['first_run_ms']:.4g}",
    "peak memory [MB]": lambda d: (
        f"{d['peak_memory_bytes'] / 1e6:.0f} (without the model {d['memory_without_model_bytes'] / 1e6:.0f})"
    ),
    "batch": lambda d: str(d["batch"]),
    "processes, bursts, readings": lambda d: f"{d['processes']}, {d['samples']}, {d['readings']}",
}
"""What is printed of each model."""


def _known(text: str, *numbers: float) -> str:
    """The text with its numbers, or nothing where too few processes leave them unknown."""
    return text.format(*(f"{n:.4g}" for n in numbers)) if all(n == n for n in numbers) else ""


def _cell(document: dict[str, Any], name: str) -> str:
    return LINES[name](document)
