"""hwbench fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.predictor.card_types import GpuCard, OnnxCard, TableCard
    from hwbench.predictor.space_latency import Fitted


def run(
    space: Annotated[
        list[str] | None,
        typer.Option(
            "--space",
            help="Search space; repeat for several. With --from: whose sample (or all) the rows are.",
            callback=options.own_space,
        ),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Fit the predictor of any ONNX model, calibrated on reference models and spaces.")
    ] = False,
    no_references: Annotated[
        bool, typer.Option("--no-references", help="With --kernels: calibrate on networks of the spaces only.")
    ] = False,
    source: Annotated[
        str | None, typer.Option("--from", help="Fit to anyone's table of measurements (Parquet), not to a space.")
    ] = None,
    beside: Annotated[
        list[str] | None, typer.Option("--with", help="Table whose columns are joined on those both have. With --from.")
    ] = None,
    features: Annotated[str, typer.Option("--features", help="Columns to predict from: A,B,C. With --from.")] = "",
    target: Annotated[str, typer.Option("--target", help="Column to predict. With --from.")] = "latency_ms",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the predictor. With --from.")] = None,
    regressor: Annotated[str, typer.Option("--regressor", help="With --from: hwbench list regressors.")] = "best",
    where: Annotated[list[str] | None, typer.Option("--where", help="column=value: only these rows. With --from.")] = None,
    noise_column: Annotated[
        list[str] | None, typer.Option("--noise-column", help="Standard deviation of repeats; parts add up. With --from.")
    ] = None,
    twins: Annotated[
        str | None, typer.Option("--twins", help="Column that rows computing the same share: noise ceiling. With --from.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="Runs a target is the mean of. With --noise-column.")] = 1,
    rising: Annotated[str, typer.Option("--rising", help="Number columns the target can only rise with. With --from.")] = "",
    limit: Annotated[int | None, typer.Option("--limit", help="At most so many rows, drawn at random. With --from.")] = None,
    coverage: Annotated[float, typer.Option("--coverage", help="Share inside low .. high. With --from.")] = 0.9,
    tables: options.Tables = None,
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    predictor: Annotated[
        str, typer.Option("--predictor", help="Registered predictor (hwbench list predictors); auto: tested for, picked.")
    ] = "auto",
    networks: Annotated[int, typer.Option("--networks", help="Networks measured to fit, per space.")] = 16,
    holdout: Annotated[int, typer.Option("--holdout", help="Networks measured to state the error, per space.")] = 16,
    seed: options.Seed = 0,
    stored: Annotated[bool, typer.Option("--stored", help="Measure nothing: use networks measured before.")] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Fit GPU operators to public tables (--tables), for any GPU with a data sheet.")
    ] = False,
    leave_out: Annotated[
        list[str] | None, typer.Option("--leave-out", help="With --gpu: a GPU not to look at; repeat for several.")
    ] = None,
    adapt: Annotated[
        str, typer.Option("--adapt", help="With --gpu: a GPU of the tables to adapt to; its error is then stated.")
    ] = "",
    measured: Annotated[int, typer.Option("--measured", help="With --adapt: ops of that GPU to show.")] = 30,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Fit a latency predictor: for networks of spaces, any ONNX model (--kernels), any GPU (--gpu), or to a table (--from)."""
    if gpu and out is not None:
        how: dict[str, Any] = {"leave_out": leave_out or (), "adapt_to": adapt, "measured": measured, "workspace": workspace}
        fit_gpu(out, tables, how, wide, json)
        return
    if source is not None and out is not None:
        fit_table(
            source,
            spaces=space or [],
            out=out,
            wide=wide,
            json=json,
            features=_names(features),
            target=target,
            regressor=regressor,
            coverage=coverage,
            seed=seed,
            device="unknown" if device == "local" else device,
            where=options.pairs("--where", where),
            limit=limit,
            noise=noise_column or [],
            repeats=repeats,
            rising=_names(rising),
            tables=None if Path(source).exists() else tables,
            beside=beside or [],
            twins=twins,
        )
        return
    asked: dict[str, Any] = {
        "device": device,
        "runtime": runtime,
        "setting": options.setting(dtype, batch, threads),
        "workspace": workspace,
        "networks": networks,
        "holdout": holdout,
        "seed": seed,
        "stored": stored,
    }
    if kernels:
        fit_kernels(space or [], {**asked, "references": not no_references}, wide, json)
    else:
        fit_networks(space or [], {**asked, "predictor": predictor}, wide, json)


def fit_networks(spaces: list[str], asked: Mapping[str, Any], wide: bool, json: bool) -> None:
    """A predictor of the spaces' networks."""
    import hwbench

    with console.progress("fitting") as tick:
        done = hwbench.fit(spaces, tick=tick, **asked)
    if json:
        console.emit_json({"folder": str(done.folder), "card": done.card})
    else:
        _show_networks(done, wide)


def fit_kernels(spaces: list[str], asked: Mapping[str, Any], wide: bool, json: bool) -> None:
    """A predictor of any ONNX model, by its kernels."""
    from hwbench.predictor import onnx_fit

    with console.progress("fitting") as tick:
        card = onnx_fit.fit_models(spaces, tick=tick, **asked)
    if json:
        console.emit_json({"card": _but(card, "kernels")})
    else:
        _show_kernels(card, wide)


def fit_table(source: str, spaces: list[str], out: Path, features: list[str], wide: bool, json: bool, **asked: Any) -> None:
    """A predictor of a column of anyone's table."""
    from hwbench.core.errors import UsageError
    from hwbench.predictor.tabular import fit

    if len(spaces) > 1:
        raise UsageError(f"With --from, --space names the one space its rows are a sample of; {len(spaces)} were given.")
    if not features:
        raise UsageError("--features names no column; write A,B,C.")
    with console.progress("fitting"):
        card = fit.fit_table(source, features, out=out, space=spaces[0] if spaces else None, **asked)
    if json:
        console.emit_json({"folder": str(out), "card": _but(card, "state", "encodings")})
    else:
        _show_table(card, out, wide)


def fit_gpu(out: Path, tables: Path | None, asked: Mapping[str, Any], wide: bool, json: bool) -> None:
    """GPU operators of public tables."""
    from hwbench.core.errors import UsageError
    from hwbench.predictor.gpu import fit

    if tables is None:
        raise UsageError("Where are the public tables? Give --tables DIR or set HWBENCH_TABLES.")
    with console.progress("fitting GPU operators"):
        card = fit.make(tables, out, **asked)
    if json:
        console.emit_json({"folder": str(out), "card": _but(card, "state")})
    else:
        _show_gpu(card, out, wide)


def _but(card: TableCard | OnnxCard | GpuCard, *left_out: str) -> dict[str, Any]:
    """A card's document without what only a program reads."""
    from hwbench.core.typed_json import encode

    return {name: value for name, value in encode(card).items() if name not in left_out}


def _show_networks(done: Fitted, wide: bool) -> None:
    rows = [
        {"statistic": statistic, "space": name, **console.error_row(error)}
        for statistic, part in done.card.statistics.items()
        for name, error in {"all": part.holdout, **part.holdout_by_space}.items()
    ]
    columns = console.error_columns({"statistic": "statistic", "space": "space"}, rows)
    title = f"Errors on networks the fit has not seen -> {done.folder}"
    console.table(title, rows, columns, wide, more=console.RARELY_ASKED)
    if done.card.additivity:
        console.say(f"predictor {done.card.predictor}: {done.card.additivity['why']}")
    if band := done.card.statistics["min"].band:
        console.say(f"interval (min): {math.expm1(band.below):+.1%} to {math.expm1(band.above):+.1%} ({band.how})")
    if fill := done.card.fill:
        console.say(
            f"{fill['rows']} rows were not measured but filled in; measured: {fill['measured_share']:.0%} of the spaces' ops."
        )


def _show_kernels(card: OnnxCard, wide: bool) -> None:
    least = card.statistics["min"]
    rows = [
        {"name": name, **console.error_row(error)}
        for name, error in {"all, families known": least.holdout or {}, **(least.unseen_family or {})}.items()
    ]
    columns = console.error_columns({"name": "networks of"}, rows)
    title = "Errors on networks the fit has not seen; single families were left out of it altogether"
    console.table(title, rows, columns, wide, more=console.RARELY_ASKED)
    console.say(f"{card.kernels.rows} kernels; interval: {least.band.how}, times the doubt of each model")


def _show_table(card: TableCard, out: Path, wide: bool) -> None:
    rows = [{"rows": name, **console.error_row(errors)} for name, errors in card.errors.items() if isinstance(errors, dict)]
    columns = console.error_columns({"rows": "rows"}, rows)
    console.table(f"{card.regressor} for {card.target} -> {out}", rows, columns, wide, more=console.RARELY_ASKED)
    console.say(f"coverage: {_line(card.coverage)}")
    console.say(f"noise ceiling: {_line(card.noise_ceiling)}")
    for warning in card.warnings:
        console.say(f"  note: {warning}")


def _show_gpu(card: GpuCard, out: Path, wide: bool) -> None:
    """Errors by kind and generation left out; of the GPU it was adapted to; of whole networks."""
    coverage, (zero, few) = card.coverage or {}, list(card.errors)[:2]
    rows = []
    for kind, generations in card.errors[zero].items():
        for name in generations:
            row = {"kind": kind, "generation left out": name}
            for how in (zero, few):
                row[f"{how} error %"] = _percent(card.errors[how].get(kind, {}).get(name))
                row[f"{how} covered %"] = _percent(coverage[how].get(kind, {}).get(name))
            rows.append(row)
    console.table(f"Errors on generations left out in turn -> {out}", rows, wide=wide)
    for title, by_kind in list(card.errors.items())[2:]:
        rows = [{"": k, "error %": _percent(v), "covered %": _percent(coverage[title].get(k))} for k, v in by_kind.items()]
        console.table(title, rows, wide=wide)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _line(value: Any) -> str:
    """What a card states of coverage or of a noise ceiling: whole numbers are counts, others are shares."""
    if isinstance(value, dict):
        return ", ".join(f"{name} ({_line(v)})" if isinstance(v, dict) else f"{name} {_line(v)}" for name, v in value.items())
    return "unknown" if value is None else f"{value:.2%}" if isinstance(value, float) else str(value)
