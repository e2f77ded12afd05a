"""hwbench predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.predictor.onnx_latency import ModelLatency


def run(
    model: Annotated[Path | None, typer.Argument(help="ONNX model, taken apart and priced kernel by kernel.")] = None,
    space: Annotated[str | None, typer.Option("--space", help="Search space whose architectures --arch gives.")] = None,
    arch: Annotated[Path | None, typer.Option("--arch", help="Architecture file, search.json or a search's folder.")] = None,
    predictor: Annotated[Path | None, typer.Option("--predictor", help="Folder made by: hwbench fit --from TABLE.")] = None,
    source: Annotated[Path | None, typer.Option("--input", help="Parquet table to predict, with --predictor.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="The table with prediction, low, high, with --predictor.")
    ] = None,
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    shape: options.Shapes = None,
    layers: Annotated[int, typer.Option("--layers", help="Slowest kernels of a model to list.")] = 12,
    workspace: options.Workspace = options.HERE,
    statistic: options.Statistic = "min",
    json: options.Json = False,
) -> None:
    """Predict a latency: of an ONNX model, of architectures of a space, or of every row of a table."""
    from hwbench.core.errors import UsageError

    forms = {
        "MODEL.onnx": model,
        "--space with --arch": space or arch,
        "--predictor with --input and --output": predictor or source,
    }
    given = [name for name, value in forms.items() if value is not None]
    if len(given) != 1:
        raise UsageError(f"Give one of {', '.join(forms)}; {' and '.join(given) or 'nothing'} was given.")
    if model is not None:
        _model(model, device, runtime, threads, batch, dtype, options.shapes(shape), layers, workspace, statistic, json)
    elif space is None or arch is None:
        if predictor is None or source is None or output is None:
            raise UsageError(f"{given[0]} belong together; one of them is missing.")
        _table(predictor, source, output, json)
    else:
        _architectures(space, arch, device, runtime, threads, batch, dtype, workspace, statistic, json)


def _architectures(
    space: str,
    arch: Path,
    device: str,
    runtime: str,
    threads: int,
    batch: int,
    dtype: str,
    workspace: Path,
    statistic: str,
    json: bool,
) -> None:
    import hwbench

    answers = hwbench.predict(space, arch, device, runtime, options.setting(dtype, batch, threads), workspace, statistic)
    first = answers[0]
    if json:
        shared = {key: first[key] for key in ("device", "runtime", "setting", "statistic", "source", "certified", "predictor")}
        console.emit_json({"space": space, **shared, "predictions": answers})
        return
    rows = [
        {"#": i, f"latency ms ({statistic})": a["latency_ms"], "low ms": a["low_ms"], "upper ms": a["upper_ms"],
         "coverage": f"{a['coverage']:.0%}"}
        for i, a in enumerate(answers)
    ]  # fmt: skip
    console.predictor("latency_ms", space, first["predictor"])
    typer.echo(f"from {first['source']}")
    console.table(f"{space} on {first['device']} / {runtime} / {first['setting']}", rows)


def _table(predictor: Path, source: Path, output: Path, json: bool) -> None:
    from hwbench.predictor.tabular import fit

    done = fit.predict_table(predictor, source, output)
    if json:
        console.emit_json(done)
        return
    typer.echo(f"{done['output']}: {done['rows']} rows, with prediction, low and high ({done['coverage']:.0%} interval)")


def _model(
    model: Path, device: str, runtime: str, threads: int, batch: int, dtype: str, shapes: dict[str, list[int]], layers: int,
    workspace: Path, statistic: str, json: bool,
) -> None:  # fmt: skip
    import dataclasses

    import hwbench
    from hwbench.core.errors import UsageError

    if batch != 1:
        raise UsageError(f"An ONNX model's batch is its own; --batch {batch} cannot change it. Fix open sides with --shape.")
    setting = options.setting(dtype, 1, threads)
    found: ModelLatency = hwbench.predict(
        model, device=device, runtime=runtime, setting=setting, workspace=workspace, statistic=statistic, shapes=shapes
    )
    if json:
        console.emit_json(dataclasses.asdict(found))
        return
    kinds: dict[str, list[float]] = {}
    for layer in found.layers:
        kinds.setdefault(layer.kernel, []).append(layer.latency_ms)
    first = {layer.kernel: layer for layer in reversed(found.layers)}
    slowest = sorted(kinds, key=lambda key: -sum(kinds[key]))
    rows = [
        {
            "kernel": console.short(key),
            "times": len(kinds[key]),
            "ms": sum(kinds[key]),
            "share": f"{sum(kinds[key]) / found.latency_ms:.1%}",
            "price": "measured" if first[key].measured else f"modelled, +-{first[key].doubt:.0%}",
            "first layer": first[key].name,
        }
        for key in slowest[:layers]
    ]
    console.table(f"Where the time goes: {len(found.layers)} kernels, {len(kinds)} different", rows)
    if found.fused:
        typer.echo(f"fused by {runtime}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(found.fused.items())))
    typer.echo(f"from {found.source}; {found.coverage:.0%} of the latency from measured kernels, the rest modelled")
    typer.echo(
        f"{model.name} on {found.device} / {runtime} / {found.setting}: {found.latency_ms:.4g} ms "
        f"({found.low_ms:.4g} to {found.high_ms:.4g}, 90 % interval, {statistic})"
    )
