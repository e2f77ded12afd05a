"""hwbench transfer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options
from hwbench.core.errors import UsageError


def run(
    known: Annotated[Path, typer.Option("--known", help="Parquet: device, architecture columns, latency_ms.")],
    features: Annotated[str, typer.Option("--features", help="Architecture columns, with commas between them.")],
    measured: Annotated[Path | None, typer.Option("--measured", help="Parquet of the new device's few measurements.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Parquet to write.")] = None,
    choose: Annotated[int | None, typer.Option("--choose", help="Say which N architectures to measure instead.")] = None,
    coverage: Annotated[float, typer.Option("--coverage", help="Share of latencies to fall inside low .. high.")] = 0.9,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to store a predictor in; needs --device.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Name of the new device, for the predictor.")] = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Predict all architectures on a new device from about ten measurements of it."""
    from hwbench.predictor.few_shot import transfer

    columns = [name.strip() for name in features.split(",") if name.strip()]
    if choose is not None:
        if measured is not None:
            raise UsageError("Give --choose N to learn what to measure, or --measured FILE to predict from it, not both.")
        if out is not None or device is not None:
            raise UsageError("--out and --device store what --measured FILE predicts; --choose N writes to --output FILE.")
        with console.progress("choosing"):
            chosen = transfer.choose(known, columns, n=choose, output=output)
        if json:
            console.emit_json({"choose": chosen.architectures, "known_devices": chosen.known_devices, "output": chosen.output})
            return
        rows = [{"#": i, **{k: str(v) for k, v in each.items()}} for i, each in enumerate(chosen.architectures, start=1)]
        console.table(f"Measure these {len(rows)} on the new device", rows, wide=wide)
        return
    if wide:
        raise UsageError("--wide is for the table of --choose N; --measured FILE prints none: leave it out.")
    if measured is None or (output is None and out is None):
        raise UsageError("Give --measured FILE and --output FILE (or --device NAME --out DIR), or --choose N.")
    with console.progress("transferring"):
        done = transfer.transfer(known, measured, columns, output=output, coverage=coverage, out=out, device=device)
    if json:
        console.emit_json(done.document())
        return
    written = [place for place in (done.output, done.predictor) if place is not None]
    near = ", ".join(f"{name} {share:.0%}" for name, share in done.nearest.items())
    typer.echo(f"{done.architectures} architectures predicted from {done.measured} measurements -> {' and '.join(written)}")
    typer.echo(f"{done.known_devices} known devices; most like {near or 'none of them in particular'}")
    typer.echo(
        f"known devices treated as new: Spearman {done.rehearsed_spearman:.3f} (worst {done.rehearsed_spearman_worst:.3f}), "
        f"error {done.rehearsed_error:.1%}; {done.coverage:.0%} intervals {done.median_width:.0%} wide"
    )
    for warning in done.warnings:
        typer.echo(f"note: {warning}")
    typer.echo(f"{'trust' if done.trust else 'DO NOT TRUST'}: {done.reason}")
