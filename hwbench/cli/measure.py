"""hwbench measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.profiler.policy import Policy

TOO_SLOW = 6
"""What the command ends with if --fail-if-slower says so; other codes are those of errors (core/errors.py)."""

Models = Annotated[list[Path], typer.Argument(help="ONNX files; several are interleaved and compared with the first.")]
Runtimes = Annotated[
    list[str],
    typer.Option(
        "--runtime",
        help="Inference runtime, or a release of it: onnxruntime==1.20.0 (pip installs it into a folder of its own). Several "
        "take turns and are compared, kernel by kernel.",
    ),
]
Dtype = Annotated[
    list[str] | None,
    typer.Option("--dtype", help="int8 or fp16: measure a converted copy. Several are compared, kernel by kernel."),
]
Scenario = Annotated[
    str,
    typer.Option(
        "--scenario",
        help="back-to-back, paced-20ms (idle gap before every run), cold (caches emptied) or changing-shapes (one session, "
        "points of --sweep in drawn order).",
    ),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option("--sweep", help="AXIS=1,8: measure at each size of batch, threads or an open side; repeat for a grid."),
]
MaxProcesses = Annotated[int | None, typer.Option("--max-processes", help="Cap on fresh worker processes.")]
MaxSeconds = Annotated[
    float | None, typer.Option("--max-seconds", help="No further round starts after that; a comparison has 30 by default.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse int8 where the runtime keeps a product in fp32; otherwise a note says so.")
]
Out = Annotated[Path | None, typer.Option("--out", help="FILE.html, .csv or .json, or a folder for all three.")]
Raw = Annotated[bool, typer.Option("--raw", help="Raw readings too, in --json and in files that are JSON.")]
Against = Annotated[
    str | None,
    typer.Option("--against", help="LAST: compare with the last measurement kept in the workspace; or a FILE.json of --out."),
]
FailIfSlower = Annotated[
    str | None,
    typer.Option(
        "--fail-if-slower", help=f"5%: end with code {TOO_SLOW} where a model is slower by more than that, noise taken off."
    ),
]


def run(
    context: typer.Context,
    models: Models,
    device: options.Device = "local",
    runtime: Runtimes = ["onnxruntime"],  # noqa: B006 - typer reads it
    threads: options.Threads = 1,
    batch: options.ModelBatch = None,
    dtype: Dtype = None,
    strict: Strict = False,
    scenario: Scenario = "back-to-back",
    sweep: Sweep = None,
    shape: options.Shapes = None,
    fill: options.Fills = None,
    against: Against = None,
    fail_if_slower: FailIfSlower = None,
    workspace: options.Workspace = options.HERE,
    precision: options.Precision = 0.01,
    max_processes: MaxProcesses = None,
    max_seconds: MaxSeconds = None,
    seed: options.Seed = 0,
    out: Out = None,
    raw: Raw = False,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Measure any ONNX file: percentiles, minimum, throughput, start-up, memory; several files: which is faster.

    What is measured is kept in the workspace (measurements/), to be compared with later: --against LAST.
    """
    import hwbench
    from hwbench.core.command import hint
    from hwbench.core.errors import MeasurementError, UsageError
    from hwbench.lut.model_history import LAST
    from hwbench.profiler.measure import NothingBefore, PartlyInt8
    from hwbench.study import answer_files

    allowed = options.percent("--fail-if-slower", fail_if_slower)
    if out is not None:
        answer_files.check_ending(out, answer_files.OF_A_MODEL, "what was measured")
    try:
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
                strict=strict,
                against=against,
                fail_if_slower=allowed,
                workspace=workspace,
                sweep=options.sweep(sweep),
                policy=_policy(
                    1 if sweep else len(models) * max(1, len(set(dtype or []))) * len(set(runtime)),
                    precision,
                    max_processes,
                    max_seconds,
                    seed,
                ),
                tick=tick,
            )
    except NothingBefore as error:
        keep = options.typed(context, without=("against", "fail_if_slower"))
        raise UsageError(f"{error}. {hint(keep)}") from None
    except PartlyInt8 as error:
        all_the_same = options.typed(context, without=("strict",))
        raise MeasurementError(f"{error} Without --strict it is measured, and says so. {hint(all_the_same)}") from None
    shown = done if raw else [{name: value for name, value in each.items() if name != "raw"} for each in done]
    document = shown if len(shown) > 1 else shown[0]
    written = [] if out is None else answer_files.write_measured(done, document, out)
    if json:
        console.emit_json(document)
    else:
        formats = " and ".join(dict.fromkeys(str(each["dtype"]) for each in done))
        how = f"{' and '.join(dict.fromkeys(runtime))}, {formats}, {threads} thread(s), {scenario}"
        if sweep:
            _print_points(done, how, wide)
        else:
            _print(done, how, wide)
        console.say_written(written)
    if any(each.get("too_slow") for each in done):
        accept = options.typed(context, without=("fail_if_slower",)) if str(against).upper() == LAST else ""
        _say_too_slow(done, str(fail_if_slower), accept)
        raise typer.Exit(TOO_SLOW)


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


def _print(done: list[dict[str, Any]], how: str, wide: bool) -> None:
    """A column for every model, their verdicts, and how they compare with the first and with what was measured before."""
    from hwbench.device.files import local_name
    from hwbench.profiler.measured_document import FAILED
    from hwbench.study import measure_page

    failed, done = [d for d in done if FAILED in d], [d for d in done if FAILED not in d]
    first = done[0]
    names = measure_page.names(done, in_full=True) if len(done) > 1 else ["value"]
    cells = [measure_page.lines(d) for d in done]
    rows = [{"": name, **{f"{i}": each[name] for i, each in enumerate(cells)}} for name in cells[0]]
    where = "" if first["device"] == local_name() else f"{first['device']}, "
    title = f"{first['model'] if len({d['model'] for d in done}) == 1 else 'models'}: {where}{how}"
    console.table(title, rows, {"": "", **{f"{i}": name for i, name in enumerate(names)}}, wide)
    formats = len({d["dtype"] for d in done}) > 1
    said_of = [f"{d['model']} {d['dtype']}" if formats else name for d, name in zip(done, names, strict=True)]
    said_of = [str(first["model"])] if len(done) == 1 else said_of
    for d, who in zip(done, said_of, strict=True):
        console.say(f"{who}: {d['verdict']}: {d['reason']}")
        for note in measure_page.notes(d):
            console.say(f"{who}: {note}")
    for d in failed:
        console.say(f"{d['runtime']}: not measured: {d[FAILED]}")
    for d, who, name in zip(done, said_of, names, strict=True):
        for said in measure_page.comparisons(d):
            console.say(f"{who} {said}")
        if rows := measure_page.kernel_rows(d):
            heads = {
                "kernel": "kernel, output",
                "times": "times",
                "first": f"{measure_page.base(done, d)} ms",
                "other": f"{name} ms",
            }
            console.table(f"Kernels of {who}, what differs most first", rows, {**heads, "answer": "", "why": "why"}, wide)


def _print_points(done: list[dict[str, Any]], how: str, wide: bool) -> None:
    """A row for every point of a sweep, and what holds for all."""
    from hwbench.study import sweep_page

    title = f"{Path(str(done[0]['model'])).name}: {done[0]['device']}, {how}"
    more = "p90" if sweep_page.is_changing(done) else "session first"
    console.table(title, sweep_page.rows(done), sweep_page.columns(done), wide, more=more)
    for said in sweep_page.summary(done):
        console.say(said)


def _say_too_slow(done: list[dict[str, Any]], allowed: str, accept: str) -> None:
    """What is too slow, and the command that would take it for what later ones are compared with."""
    from hwbench.core.command import hint

    names = [f"{d['model']} (at least {d[each]['low'] - 1:.1%})" for d in done for each in d["too_slow"]]
    said = f" To accept it, {hint(accept, start='run')}" if accept else ""
    typer.echo(f"hwbench: slower by more than {allowed}: {', '.join(names)}.{said}", err=True)
