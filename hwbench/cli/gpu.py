"""hwbench gpu fit | predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

app = typer.Typer(
    help="Latency of GPU operators on a GPU never measured, from its data sheet and other GPUs.", no_args_is_help=True
)
SHOWN = 20


@app.command()
def fit(
    out: Annotated[Path, typer.Option("--out", help="Folder of the predictor.")],
    tables: Annotated[
        Path | None,
        typer.Option(
            "--tables",
            envvar="HWBENCH_TABLES",
            help="Folder of the public tables: neusight/, and aiconfigurator/ for half precision.",
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option("--leave-out", help="A GPU not to look at; repeat for several.")
    ] = None,
    adapt: Annotated[str, typer.Option("--adapt", help="A GPU of the tables to adapt to; its error is then stated.")] = "",
    measured: Annotated[int, typer.Option("--measured", help="Ops of that GPU to show.")] = 30,
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Fit on public tables of GPU operators and store the predictor."""
    from hwbench.core.errors import UsageError
    from hwbench.core.typed_json import encode
    from hwbench.predictor.gpu import fit as gpu_fit

    if tables is None:
        raise UsageError("Where are the public tables? Give --tables DIR or set HWBENCH_TABLES.")
    with console.progress("fitting GPU operators"):
        stored = gpu_fit.make(tables, out, leave_out or (), adapt, measured, workspace)
    if json:
        card = {name: value for name, value in encode(stored).items() if name != "state"}
        console.emit_json({"folder": str(out), "card": card})
        return
    rows = []
    for kind, generations in stored.errors["zero_shot"].items():
        for name in generations:
            row = {"kind": kind, "generation left out": name}
            for how in list(stored.errors)[:2]:
                row[f"{how} error %"] = _percent(stored.errors[how][kind][name])
                row[f"{how} covered %"] = _percent((stored.coverage or {})[how][kind].get(name))
            rows.append(row)
    console.table(f"Errors on generations left out in turn -> {out}", rows, wide=wide)
    for title, by_kind in list(stored.errors.items())[2:]:
        inside = (stored.coverage or {})[title]
        rows = [{"kind": k, "error %": _percent(v), "covered %": _percent(inside[k])} for k, v in by_kind.items()]
        console.table(title, rows, wide=wide)


@app.command()
def predict(
    predictor: Annotated[str, typer.Option("--predictor", help="Made by hwbench gpu fit: its folder, or its name as listed.")],
    gpu: Annotated[str, typer.Option("--gpu", help="A GPU's device name (hwbench device list).")],
    table: Annotated[Path, typer.Option("--input", help="Parquet of ops: op, and B, M, N, K or B, H.")],
    output: Annotated[Path, typer.Option("--output", help="Parquet to write: the input with prediction, low, high (ms).")],
    measured: Annotated[
        Path | None, typer.Option("--measured", help="Parquet of ops measured on that GPU: the same columns and latency_ms.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Number format of the ops: fp32, or fp16 for products.")] = "fp32",
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Predict ops on a GPU; measured ops of it, if given, correct the prediction."""
    from hwbench.core import schema
    from hwbench.core.errors import UsageError
    from hwbench.device import files
    from hwbench.predictor import card
    from hwbench.predictor.gpu import datasheet
    from hwbench.predictor.gpu import model as gpus

    folder = card.find(predictor, workspace)
    model, sheet = gpus.load(folder), datasheet.of_device(files.get(gpu, workspace))
    used = gpus.facts(folder).document()
    if measured is not None:
        seen = schema.read_table(measured)
        if "latency_ms" not in seen.column_names:
            raise UsageError(f"{measured} needs a column 'latency_ms'; found: {', '.join(seen.column_names)}.")
        model = model.adapt(sheet, datasheet.Ops.of(seen.to_pydict()), seen.column("latency_ms").to_numpy(), dtype)
    asked = schema.read_table(table)
    taken = [name for name in asked.column_names if name in ("prediction", "low", "high")]
    if taken:
        raise UsageError(f"{table} already has a column {', '.join(taken)}; rename it.")
    ops = datasheet.Ops.of(asked.to_pydict())
    with console.progress("predicting"):
        ms, _ = model.predict(sheet, ops, dtype)
        low, high = model.bounds(sheet, ops, dtype)
    for name, values in (("prediction", ms), ("low", low), ("high", high)):
        asked = asked.append_column(name, [values])
    schema.write_table(output, asked)
    unread = [name for name in asked.column_names if name not in ("op", *"BMNKH", "prediction", "low", "high")]
    rows = asked.slice(0, SHOWN).to_pylist()
    told, unlike = {"output": str(output), "gpu": sheet.name}, model.outside(sheet, dtype)
    if json:
        console.emit_json({**told, "rows": len(ops), "unread_columns": unread, "outside": unlike, "predictor": used})
        return
    console.predictor_of("latency_ms", used, "generations of GPUs, each left out in turn")
    known = f"{len(seen)} measured ops" if measured is not None else "its data sheet only"
    console.table(f"ms on {sheet.name}, from {known}; {len(ops)} ops -> {output}", rows, wide=wide)
    for sentence in unlike:
        typer.echo(f"Outside what was learnt, intervals are wider for it: {sentence}.")
    if unread:
        console.say(f"Columns kept but not read: {', '.join(unread)}.")


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)
