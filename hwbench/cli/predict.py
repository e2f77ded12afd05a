"""hwbench predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.network.spec import Setting
    from hwbench.predictor.model_latency import ModelLatency
    from hwbench.predictor.peak_memory import PeakMemory


def run(
    context: typer.Context,
    model: Annotated[Path | None, typer.Argument(help="ONNX model, taken apart and priced kernel by kernel.")] = None,
    space: Annotated[
        str | None, typer.Option("--space", help="Search space whose architectures --arch gives.", callback=options.own_space)
    ] = None,
    arch: Annotated[Path | None, typer.Option("--arch", help="Architecture file, search.json or a search's folder.")] = None,
    predictor: Annotated[
        str | None, typer.Option("--predictor", help="Made by hwbench fit --from or --gpu: its folder, or its name as listed.")
    ] = None,
    source: Annotated[Path | None, typer.Option("--input", help="Parquet table to predict, with --predictor.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output",
            help="FILE.html (a model only), .csv or .json, or a folder for all of them; with --predictor the table to write.",
        ),
    ] = None,
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.ModelBatch = None,
    dtype: options.Dtype = "fp32",
    shape: options.Shapes = None,
    fill: options.Fills = None,
    measure_missing: Annotated[
        bool, typer.Option("--measure-missing", help="Measure kernels of the model that matter and have no row, then go on.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="The peak memory of a model alone: no device need have been measured.")
    ] = False,
    layers: Annotated[int, typer.Option("--layers", help="Slowest kernels of a model to list.")] = 12,
    workspace: options.Workspace = options.HERE,
    statistic: options.Statistic = "min",
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Predict a latency: of an ONNX model, of architectures of a space, or of every row of a table."""
    if predictor is not None and source is not None and out is not None:
        if options.was_given(context, "device"):
            _operators(predictor, device, source, out, dtype, workspace, wide, json)
        else:
            options.refuse(context, ["dtype", "wide"], "--predictor reads it only with --device GPU")
            _table(predictor, source, out, workspace, json)
        return
    asked: dict[str, Any] = {
        "device": device,
        "runtime": runtime,
        "setting": options.setting(dtype, 1, threads),
        "batch": batch,
        "workspace": workspace,
        "statistic": statistic,
    }
    if model is not None and memory:
        with options.runnable(context):
            _memory(
                model,
                runtime,
                options.setting(dtype, 1, threads),
                batch,
                options.shapes(shape),
                options.fills(fill),
                wide,
                json,
            )
    elif model is not None:
        with options.runnable(context):
            _model(
                model,
                {**asked, "shapes": options.shapes(shape), "fills": options.fills(fill), "measure_missing": measure_missing},
                layers,
                out,
                wide,
                json,
            )
    elif space is not None and arch is not None:
        _architectures(space, arch, asked, out, wide, json)


def _architectures(space: str, arch: Path, asked: Mapping[str, Any], out: Path | None, wide: bool, json: bool) -> None:
    import hwbench
    from hwbench.study import answer_files

    if out is not None:
        answer_files.check_ending(out, answer_files.OF_ARCHITECTURES, "answers for architectures")
    with console.progress("predicting"):
        answers = hwbench.predict(space, arch, **asked)
    first = answers[0]
    shared = {key: first[key] for key in ("device", "runtime", "setting", "statistic", "source", "certified", "predictor")}
    document = {"space": space, **shared, "predictions": answers}
    written = [] if out is None else answer_files.write_architectures(answers, document, out)
    if json:
        console.emit_json(document)
        return
    rows = [
        {"#": i, f"latency ms ({first['statistic']})": a["latency_ms"], "low ms": a["low_ms"], "upper ms": a["upper_ms"],
         "coverage": f"{a['coverage']:.0%}"}
        for i, a in enumerate(answers)
    ]  # fmt: skip
    console.predictor("latency_ms", space, first["predictor"])
    console.say(f"from {first['source']}")
    console.table(f"{space} on {first['device']} / {first['runtime']} / {first['setting']}", rows, wide=wide)
    console.say_written(written)


def _table(predictor: str, source: Path, output: Path, workspace: Path, json: bool) -> None:
    from hwbench.core.errors import UsageError
    from hwbench.predictor import card
    from hwbench.predictor.card_types import GpuCard
    from hwbench.predictor.tabular import fit

    if isinstance(card.read(card.find(predictor, workspace)), GpuCard):
        raise UsageError(f"{predictor} knows GPU operators: of which GPU? Give --device (hwbench device list).")

    with console.progress("predicting"):
        done = fit.predict_table(card.find(predictor, workspace), source, output)
    if json:
        console.emit_json(done)
        return
    console.predictor_of(done["target"], done["predictor"], "rows")
    console.say(f"{done['output']}: {done['rows']} rows, with prediction, low and high ({done['coverage']:.0%} interval)")


def _operators(
    predictor: str, device: str, source: Path, output: Path, dtype: str, workspace: Path, wide: bool, json: bool
) -> None:
    from hwbench.predictor.gpu import op_table

    with console.progress("predicting"):
        done = op_table.predict(op_table.Asked.of(predictor, device, workspace), source, output, dtype)
    console.operators(done, output, wide, json)


def _model(model: Path, asked: Mapping[str, Any], layers: int, out: Path | None, wide: bool, json: bool) -> None:
    import hwbench
    from hwbench.core.typed_json import encode
    from hwbench.study import answer_files

    if out is not None:
        answer_files.check_ending(out, answer_files.OF_A_MODEL, "a model's answer")
    with console.progress("predicting") as tick:
        found: ModelLatency = hwbench.predict(model, **asked, tick=tick)
        document = {
            **encode(found), "calibration_ms": found.calibration_ms, "coverage": found.coverage, "shares": found.shares,
        }  # fmt: skip
        written = [] if out is None else answer_files.write_model(found, document, out, asked["workspace"])
    if json:
        console.emit_json(document)
        return
    console.table(*_slowest(found, layers), wide=wide, more="layer")
    if found.fused:
        console.say(f"fused by {found.runtime}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(found.fused.items())))
    console.predictor_of("latency_ms", found.predictor, "networks of families left out in turn")
    for note in found.notes:
        console.say(f"note: {note}")
    shares = ", ".join(f"{share:.3g} % {price}" for price, share in _percent(found).items())
    console.say(f"from {found.source}; of the latency {shares}")
    if found.memory is not None:
        console.say(_peak(found.memory))
    console.say(
        f"{model.name} on {found.device} / {found.runtime} / {found.setting}: {found.latency_ms:.4g} ms "
        f"({found.low_ms:.4g} to {found.high_ms:.4g}, 90 % interval, {found.statistic})"
    )
    console.say_written(written)


def _memory(
    model: Path,
    runtime: str,
    setting: Setting,
    batch: int | None,
    shapes: Mapping[str, Sequence[int]],
    fills: Mapping[str, float],
    wide: bool,
    json: bool,
) -> None:
    import hwbench
    from hwbench.core.typed_json import encode
    from hwbench.profiler import onnx_inputs

    with console.progress("reading the model"):
        peak = hwbench.peak_memory(model, runtime, setting, onnx_inputs.batched(model, shapes, batch), fills)
    if json:
        console.emit_json({"model": str(model), "runtime": runtime, **encode(peak)})
        return
    plan = peak.plan
    rows = [
        {"part": "process (Python, numpy)", "MB": peak.process_bytes / 1e6},
        {"part": f"{runtime} itself", "MB": peak.runtime_bytes / 1e6},
        {"part": "making the session", "MB": peak.load_bytes / 1e6},
        {"part": "running it", "MB": peak.run_bytes / 1e6},
        {"part": "  of it weights", "MB": plan.held_bytes / 1e6},
        {"part": "  inputs", "MB": (peak.run_bytes - plan.held_bytes - plan.arena_bytes) / 1e6},
        {"part": "  activations, results", "MB": plan.arena_bytes / 1e6},
    ]
    console.table("The larger of making the session and running it, above the first two", rows, wide=wide)
    console.say(f"{model.name}: {_peak(peak)}")


def _peak(peak: PeakMemory) -> str:
    return (
        f"peak memory {peak.peak_bytes / 1e6:.0f} MB ({peak.low_bytes / 1e6:.0f} to {peak.high_bytes / 1e6:.0f}), "
        f"reached in {peak.when}; the most that activations need at once is {peak.plan.alive_bytes / 1e6:.3g} MB"
    )


def _percent(found: ModelLatency) -> dict[str, float]:
    """Shares in percent, to a tenth, that add up to 100: the largest takes what rounding leaves."""
    rounded = {price: round(100 * share, 1) for price, share in found.shares.items()}
    largest = max(rounded, key=lambda price: rounded[price])
    rounded[largest] = round(100 - sum(share for price, share in rounded.items() if price != largest), 1)
    return rounded


def _slowest(found: ModelLatency, n: int) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
    """The kernels that take most of a model's time, repeats together, then all else: title, rows, which add up, and columns."""
    from hwbench.predictor.model_latency import CALIBRATION
    from hwbench.study import time_split

    kernels = time_split.by_kernel(found.layers)
    rows: list[dict[str, Any]] = [
        {
            "kernel": console.short(first.kernel) if time_split.shapes(first.kernel) else first.type,
            "times": kernel.runs,
            "ms": kernel.latency_ms,
            "price": first.price + ("" if first.measured else f", +-{first.doubt:.0%}"),
            "layer": first.name,
        }
        for kernel in kernels[:n]
        for first in kernel.layers[:1]
    ]
    if rest := kernels[n:]:
        times, rest_ms = sum(kernel.runs for kernel in rest), sum(kernel.latency_ms for kernel in rest)
        rows.append({"kernel": f"{len(rest)} other kernel{'s' * (len(rest) > 1)}", "times": times, "ms": rest_ms})
    rows.append({"kernel": CALIBRATION, "ms": found.calibration_ms, "price": "by whole networks"})
    rows.append({"kernel": "all", "ms": found.latency_ms})
    columns = {"kernel": "kernel", "times": "times", "ms": "ms", "share": "share", "price": "price", "layer": "first layer"}
    shown = [{**row, "share": f"{row['ms'] / found.latency_ms:.1%}"} for row in rows]
    return f"Where the time goes: {len(found.layers)} kernels, {len(kernels)} different", shown, columns
