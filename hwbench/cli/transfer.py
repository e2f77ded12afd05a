"""hwbench transfer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    known: Annotated[Path | None, typer.Option("--known", help="Parquet: device, architecture columns, latency_ms.")] = None,
    features: Annotated[str, typer.Option("--features", help="Architecture columns, with commas between them.")] = "",
    measured: Annotated[Path | None, typer.Option("--measured", help="Parquet of the new device's few measurements.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Parquet to write.")] = None,
    choose: Annotated[int | None, typer.Option("--choose", help="Say which N architectures to measure instead.")] = None,
    coverage: Annotated[float, typer.Option("--coverage", help="Share of latencies to fall inside low .. high.")] = 0.9,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to store a predictor in; needs --device.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Name of the new device, for the predictor.")] = None,
    predictor: Annotated[
        str | None,
        typer.Option("--predictor", help="GPU operators (hwbench fit --gpu) to adapt to --device by --measured ops."),
    ] = None,
    source: Annotated[Path | None, typer.Option("--input", help="With --predictor: Parquet of ops to predict.")] = None,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Predict all architectures, or all operators of a GPU, on a new device from a few measurements of it."""
    if predictor is not None and device is not None and measured is not None:
        _operators(predictor, device, measured, (source, output), out, dtype, workspace, wide, json)
        return
    columns = [name.strip() for name in features.split(",") if name.strip()]
    if known is None:
        return
    if choose is not None:
        _choose(known, columns, choose, output, wide, json)
    elif measured is not None:
        _predict(known, measured, columns, json, output=output, coverage=coverage, out=out, device=device)


def _operators(
    predictor: str,
    device: str,
    measured: Path,
    table: tuple[Path | None, Path | None],
    out: Path | None,
    dtype: str,
    workspace: Path,
    wide: bool,
    json: bool,
) -> None:
    """A predictor of GPU operators, adapted: stored, or asked for the ops of a table."""
    from hwbench.core.typed_json import encode
    from hwbench.predictor.gpu import op_table

    asked, few = op_table.Asked.of(predictor, device, workspace), op_table.Few.read(measured)
    source, output = table
    if out is not None:
        with console.progress("adapting"):
            card = op_table.adapt(asked, few, out, dtype)
        told, errors = list(card.errors.items())[-1]
        document = {"folder": str(out), "device": device, "measured": len(few.ops), "errors": encode(errors)}
        if not json or source is not None:
            console.say(f"{asked.gpu.name}: {len(few.ops)} ops -> {out}; {told}: {console.errors_by_kind(errors)}")
        if json and source is None:
            console.emit_json(document)
    if source is not None and output is not None:
        with console.progress("predicting"):
            done = op_table.predict(asked, source, output, dtype, few)
        console.operators(done, output, wide, json)


def _choose(known: Path, columns: list[str], n: int, output: Path | None, wide: bool, json: bool) -> None:
    """Which architectures to measure."""
    from hwbench.predictor.few_shot import transfer

    with console.progress("choosing"):
        chosen = transfer.choose(known, columns, n=n, output=output)
    if json:
        console.emit_json({"choose": chosen.architectures, "known_devices": chosen.known_devices, "output": chosen.output})
        return
    rows = [{"#": i, **{k: str(v) for k, v in each.items()}} for i, each in enumerate(chosen.architectures, start=1)]
    console.table(f"Measure these {len(rows)} on the new device", rows, wide=wide)


def _predict(known: Path, measured: Path, columns: list[str], json: bool, **asked: Any) -> None:
    """All architectures on the new device, and whether to trust it."""
    from hwbench.predictor.few_shot import transfer

    with console.progress("transferring"):
        done = transfer.transfer(known, measured, columns, **asked)
    if json:
        console.emit_json(done.document())
        return
    written = [place for place in (done.output, done.predictor) if place is not None]
    near = ", ".join(f"{name} {share:.0%}" for name, share in done.nearest.items())
    console.say(f"{done.architectures} architectures predicted from {done.measured} measurements -> {' and '.join(written)}")
    console.say(f"{done.known_devices} known devices; most like {near or 'none of them in particular'}")
    console.say(
        f"known devices treated as new: Spearman {done.rehearsed_spearman:.3f} (worst {done.rehearsed_spearman_worst:.3f}), "
        f"error {done.rehearsed_error:.1%}; {done.coverage:.0%} intervals {done.median_width:.0%} wide"
    )
    for warning in done.warnings:
        console.say(f"note: {warning}")
    console.say(f"{'trust' if done.trust else 'DO NOT TRUST'}: {done.reason}")
