"""hwbench search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    space: options.Space,
    budget_ms: Annotated[float, typer.Option("--budget-ms", help="Latency budget for the statistic.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of this search; run again to resume.")],
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    strategy: Annotated[str, typer.Option("--strategy", help="hwbench list strategies.")] = "evolution",
    objective: Annotated[str, typer.Option("--objective", help="hwbench list objectives.")] = "constrained",
    proxy: Annotated[str, typer.Option("--proxy", help="What stands in for accuracy.")] = "params",
    statistic: options.Statistic = "min",
    evaluations: Annotated[int, typer.Option("--evaluations", help="Architectures scored.")] = 10_000,
    gamma: Annotated[float | None, typer.Option("--gamma", help="Exponent of the MnasNet reward, <= 0.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Hold the budget against the plain prediction, not its upper bound.")
    ] = False,
    uncertified: Annotated[
        bool,
        typer.Option("--uncertified", help="Search also where no calibration saw the space; bounds are then not certified."),
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            help="NAME=VALUE, the most a cost may be; repeat for several. "
            "NAME: params_m, macs_m, flops_m, memory_mb (weights), latency_ms@DEVICE or instructions_m@DEVICE.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes that score, where the proxy is expensive.")] = 1,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Find the best architecture within a latency budget and other limits."""
    import hwbench

    setting = options.setting(dtype, batch, threads)
    limits = _numbers(options.pairs("--limit", limit))
    with console.progress("searching") as tick:
        done = hwbench.search(
            space, budget_ms, out, device, runtime, setting, workspace, strategy, objective, proxy, statistic,
            evaluations, seed, gamma, not plain, tick, limits, workers, uncertified=uncertified,
        )  # fmt: skip
    if json:
        console.emit_json(done)
        return
    about = done["search"]
    for name, used in about["predictors"].items():
        console.predictor(name, space, used)
    other = "p50" if statistic == "min" else "min"
    rows = [
        {
            "#": i,
            f"{proxy} score": f["accuracy"],
            f"predicted ms ({statistic})": f["latency_ms"],
            "upper ms": f["upper_ms"],
            f"predicted ms ({other})": f[f"{other}_ms"],
            **{name: f[name] for name in limits},
            "within budget": f["within_budget"],
        }
        for i, f in enumerate(about["finalists"])
    ]
    for name, usual in about["usual"].items():
        typer.echo(f"{name} of networks of {space}: " + ", ".join(f"{word} {value:.4g}" for word, value in usual.items()))
    asked = ", ".join([f"{budget_ms:g} ms ({statistic})", *(f"{name} <= {most:g}" for name, most in limits.items())])
    console.table(f"{space} within {asked}: {about['evaluated']} evaluated, {about['feasible']} within the budget", rows)
    typer.echo(f"winner: {done['architectures'][0]}")
    typer.echo(f"next: hwbench verify {out} --workspace {workspace}")


def _numbers(given: dict[str, str]) -> dict[str, float]:
    from hwbench.core.errors import UsageError

    found = {}
    for name, value in given.items():
        try:
            found[name] = float(value)
        except ValueError:
            raise UsageError(f"--limit '{name}={value}' is not understood; write {name}=NUMBER.") from None
    return found
