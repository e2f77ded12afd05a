"""hwbench search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    space: options.Space,
    out: Annotated[Path, typer.Option("--out", help="Folder of this search; run again to resume.")],
    budget_ms: Annotated[
        float | None, typer.Option("--budget-ms", help="Latency budget for the statistic; short for --budget latency_ms=MS.")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            help="0.6x: that many times the latency predicted of the space's largest architecture (the largest choice of "
            "everything; of choices that are names, most multiply-accumulates). Or COST=VALUE, any cost as the budget, "
            "e.g. instructions_m@emulated-cortex-a72=600.",
        ),
    ] = None,
    device: options.Device = "local",
    runtime: options.Runtime = "onnxruntime",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    workspace: options.Workspace = options.HERE,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help="hwbench list strategies; by default evolution where a score is a table look-up, else gp-ehvi.",
        ),
    ] = None,
    objective: Annotated[str, typer.Option("--objective", help="hwbench list objectives.")] = "constrained",
    proxy: Annotated[
        str | None, typer.Option("--proxy", help="What stands in for accuracy (hwbench list proxies); by default params.")
    ] = None,
    accuracy: Annotated[
        str | None,
        typer.Option(
            "--accuracy",
            help="Your own instead: FILE.py:NAME, a function of an architecture; FILE.parquet or FILE.csv (:COLUMN), a table "
            "of known ones, all looked at; or a name of hwbench list benchmarks.",
        ),
    ] = None,
    reuse: Annotated[
        Path | None,
        typer.Option("--reuse", help="Folder of another search: what its accuracy function measured is taken over."),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", help="Folder of the table that --accuracy names (default: HWBENCH_TABLES).")
    ] = None,
    statistic: options.Statistic = "min",
    evaluations: Annotated[
        int | None,
        typer.Option(
            "--evaluations", help="Architectures scored; by default 10000 where a score is a table look-up, else 300."
        ),
    ] = None,
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
            "NAME: params_m, macs_m, flops_m, memory_mb (weights), peak_memory_mb, latency_ms@DEVICE or instructions_m@DEVICE.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes that score, where a score is expensive.")] = 1,
    executor: options.Executor = options.USUAL,
    seed: options.Seed = 0,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Find the best architecture within a budget (latency or any other cost) and other limits."""
    import hwbench

    asked = {"budget": _budget(budget), "limits": _numbers("--limit", limit), "workspace": workspace}
    how = {"strategy": strategy, "objective": objective, "statistic": statistic, "evaluations": evaluations}
    by = {"proxy": proxy, "accuracy": accuracy, "reuse": reuse, "tables": tables, "executor": executor}
    where = {"device": device, "runtime": runtime, "setting": options.setting(dtype, batch, threads)}
    more = {"seed": seed, "gamma": gamma, "certified": not plain, "workers": workers, "uncertified": uncertified}
    with console.progress("searching") as tick:
        done = hwbench.search(space, budget_ms, out, tick=tick, **asked, **how, **by, **where, **more)
    if json:
        console.emit_json(done)
        return
    _show(done, wide)
    console.next_step("verify", out, space, workspace)


def _show(done: dict[str, Any], wide: bool) -> None:
    """What was found, for people."""
    from hwbench.optimize.settings import Settings

    about, asked = done["search"], Settings.of(done["search"])
    for name, used in about["predictors"].items():
        console.predictor(name, asked.space, used)
    for name, usual in about["usual"].items():
        words = ", ".join(f"{word} {value:.4g}" for word, value in usual.items())
        console.say(f"{name} of networks of {asked.space}: {words}")
    if asked.budget_factor is not None and asked.budget_ms is not None:
        whole = asked.budget_ms / asked.budget_factor
        console.say(
            f"budget: {asked.budget_factor:g}x of {whole:.4g} ms, which is predicted of the largest architecture: "
            f"{asked.budget_ms:g} ms"
        )
    if about["chosen"]:
        console.say(f"strategy: {about['chosen']}")
    other = "p50" if asked.statistic == "min" else "min"
    latency = {
        "latency_ms": f"predicted ms ({asked.statistic})",
        "upper_ms": "upper ms",
        f"{other}_ms": f"predicted ms ({other})",
    }
    costs = [name for name in asked.bounds if name != "latency_ms"]
    columns = {
        "accuracy": f"{asked.proxy} score" if asked.proxy else "accuracy",
        **latency,
        **{name: name for name in costs},
        "within_budget": "within budget",
    }
    rows = [{"#": i, **finalist} for i, finalist in enumerate(about["finalists"])]
    shown = {"#": "#", **{name: head for name, head in columns.items() if name in rows[0]}}
    title = f"{asked.space} within {asked.asked}: {about['evaluated']} evaluated, {about['feasible']} within the budget"
    console.table(title, rows, shown, wide)
    if proof := about["proof"]:
        typer.echo(
            f"proven best: {proof['value']:.9g}, none within the limits above {proof['bound']:.9g}, gap {proof['gap']:.2g}"
        )
    if about["failed"]:
        reasons = "; ".join(f"{count} x {why}" for why, count in about["failed"].items())
        console.say(
            f"without accuracy: {about['invalid']} of {about['evaluated']} ({reasons}); each with its reason in trials.parquet"
        )
    for note in about["notes"]:
        console.say(f"note: {note}")
    typer.echo(f"winner: {done['architectures'][0]}")


def _budget(given: list[str] | None) -> dict[str, float] | str:
    """A share such as 0.6x, as it was written, or cost -> number."""
    from hwbench.core.errors import UsageError

    shares = [text for text in given or [] if "=" not in text]
    if shares and len(given or []) > 1:
        raise UsageError(f"A search has one budget, got {', '.join(given or [])}: make all but one of them a --limit.")
    return shares[0] if shares else _numbers("--budget", given)


def _numbers(option: str, given: list[str] | None) -> dict[str, float]:
    """Cost -> number, from COST=NUMBER."""
    from hwbench.core.errors import UsageError

    found: dict[str, float] = {}
    for name, value in options.pairs(option, given).items():
        try:
            found[name] = float(value)
        except ValueError:
            raise UsageError(f"{option} '{name}={value}' is not understood; write {name}=NUMBER.") from None
    return found
