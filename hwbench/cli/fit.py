"""hwbench fit."""

from __future__ import annotations

from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    space: options.Spaces,
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    predictor: Annotated[str, typer.Option("--predictor", help="Registered predictor (hwbench list predictors).")] = "lut_sum",
    networks: Annotated[int, typer.Option("--networks", help="Networks measured to fit, per space.")] = 16,
    holdout: Annotated[int, typer.Option("--holdout", help="Networks measured to state the error, per space.")] = 16,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure a few whole networks and fit one latency predictor for all spaces given."""
    import hwbench

    setting = options.setting(dtype, batch, threads)
    with console.progress("measuring networks") as tick:
        done = hwbench.fit(space, device, runtime, setting, workspace, predictor, networks, holdout, seed, tick=tick)
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


def _percent(error: dict[str, float]) -> dict[str, str]:
    return {f"{key} %": f"{100 * error[key]:.2f}" for key in ("mean_abs_error", "p95_abs_error", "max_abs_error", "bias")}
