"""hwbench fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    space: Annotated[
        list[str] | None,
        typer.Option("--space", help="Search space; repeat for several. With --from: whose sample (or all) the rows are."),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Fit the predictor of any ONNX model, calibrated on networks of the spaces.")
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
    json: options.Json = False,
) -> None:
    """Fit a latency predictor: for networks of spaces, for any ONNX model (--kernels), or to a table (--from)."""
    import hwbench
    from hwbench.core.errors import UsageError

    if source is None and not space:
        raise UsageError("Give --space (networks are measured) or --from FILE.parquet (they were).")
    if source is not None and len(space or []) > 1:
        raise UsageError(f"With --from, --space names the one space its rows are a sample of; {len(space or [])} were given.")
    if source is not None:
        from hwbench.predictor.tabular import fit

        if out is None or not features:
            raise UsageError("--from needs --features A,B,C and --out DIR.")
        card = fit.fit_table(
            source,
            _names(features),
            target,
            out,
            regressor,
            coverage,
            seed,
            "unknown" if device == "local" else device,
            options.pairs("--where", where),
            limit,
            noise_column or [],
            repeats,
            _names(rising),
            None if Path(source).exists() else tables,
            beside or [],
            twins,
            space[0] if space else None,
        )
        _say_table(card, out, json)
        return
    assert space
    setting = options.setting(dtype, batch, threads)
    if kernels:
        from hwbench.predictor import onnx_latency

        with console.progress("measuring networks") as tick:
            card = onnx_latency.fit_models(
                space, device, runtime, setting, workspace, networks, holdout, seed, stored=stored, tick=tick
            )
        _say_kernels(card, json)
        return
    with console.progress("measuring networks") as tick:
        done = hwbench.fit(
            space, device, runtime, setting, workspace, predictor, networks, holdout, seed, tick=tick, stored=stored
        )
    if json:
        console.emit_json({"folder": str(done.folder), "card": done.card})
        return
    rows = []
    for statistic, part in done.card["statistics"].items():
        for name, error in {"all": part["holdout"], **part["holdout_by_space"]}.items():
            rows.append(
                {"statistic": statistic, "space": name, **{k: error[k] for k in ("n", "kendall_tau")}, **_percent(error)}
            )
    console.table(f"Errors on networks the fit has not seen -> {done.folder}", rows)
    if done.card["additivity"]:
        typer.echo(f"predictor {done.card['predictor']}: {done.card['additivity']['why']}")
    band = done.card["statistics"]["min"]["band"]
    low, high = math.expm1(band["below"]), math.expm1(band["above"])
    typer.echo(f"interval (min): {low:+.1%} to {high:+.1%} ({band['how']})")
    if fill := done.card["fill"]:
        typer.echo(
            f"{fill['rows']} rows were not measured but filled in; measured: {fill['measured_share']:.0%} of the spaces' ops."
        )


def _percent(error: dict[str, float]) -> dict[str, str]:
    return {f"{key} %": f"{100 * error[key]:.2f}" for key in ("mean_abs_error", "p95_abs_error", "max_abs_error", "bias")}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _say_table(card: dict[str, Any], out: Path, json: bool) -> None:
    if json:
        console.emit_json({"folder": str(out), "card": {k: v for k, v in card.items() if k not in ("state", "encodings")}})
        return
    rows = [{"rows": split, **_accuracies(errors)} for split, errors in card["errors"].items() if isinstance(errors, dict)]
    console.table(f"{card['regressor']} for {card['target']} -> {out}", rows)
    typer.echo(f"coverage: {_line(card['coverage'])}")
    typer.echo(f"noise ceiling: {_line(card['noise_ceiling'])}")
    for warning in card["warnings"]:
        typer.echo(f"  note: {warning}")


def _accuracies(errors: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in errors.items() if isinstance(value, int | float)}


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in value.items())
    return "unknown" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _say_kernels(card: dict[str, Any], json: bool) -> None:
    if json:
        console.emit_json({"card": {k: v for k, v in card.items() if k != "kernels"}})
        return
    least = card["statistics"]["min"]
    rows = [
        {"networks of": name, "n": error["n"], **_percent(error)}
        for name, error in {"all, families known": least["holdout"], **least["unseen_family"]}.items()
    ]
    console.table("Errors on networks the fit has not seen; single families were left out of it altogether", rows)
    typer.echo(f"{card['kernels']['rows']} kernels; interval: {least['band']['how']}, times the doubt of each model")
