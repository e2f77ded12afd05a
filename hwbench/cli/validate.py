"""hwbench validate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _layout as layout
from hwbench.cli import _options as options


def run(
    table: Annotated[str, typer.Option("--table", help="Benchmark table (hwbench list benchmarks).")],
    device: Annotated[
        list[str] | None, typer.Option("--device", help="A device of the table; repeat for several.", show_default=False)
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            "--cost", help="Instead of it params_m, flops_m, latency_ms@DEVICE as predicted; repeat.", show_default=False
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", help="hwbench list strategies; repeat for several.", show_default="default"),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option("--proxy", help="Instead of searches: a training-free score; repeat for several.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Searches per device, seeds 0 .. N - 1.")] = 20,
    evaluations: Annotated[int, typer.Option("--evaluations", help="Architectures paid for per search.")] = 1000,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", help="paid, known, predicted (latency learnt, free, guessed).", show_default="paid and known"
        ),
    ] = None,
    budget: Annotated[
        list[int] | None,
        typer.Option(
            "--budget", help="Percentile of the latencies that is a budget; 0 for none.", show_default="10, 25 and 50"
        ),
    ] = None,
    tables: options.Tables = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of log, cards and report; run again to resume.")] = Path(
        "validation"
    ),
    workspace: options.Workspace = options.HERE,
    workers: Annotated[int, typer.Option("--workers", help="Processes; the results do not depend on it.")] = 1,
    executor: options.Executor = options.USUAL,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Prove strategies, or training-free scores, on a table where the best answer is known."""
    import hwbench
    from hwbench.study.leaderboard import BUDGETS

    with console.progress("validating") as tick:
        done = hwbench.validate(
            table, device or (), strategy or ["default"], seeds, evaluations, tables, out, setting or ["paid", "known"],
            budgets=BUDGETS if budget is None else [each for each in budget if each], workers=workers, tick=tick,
            cost=cost or (), proxy=proxy or (), workspace=workspace, executor=executor,
        )  # fmt: skip
    if json:
        console.emit_json(done)
    elif proxy:
        show_proxies(done, wide)
    else:
        show(done, wide)
    if done.get("failed"):
        typer.echo(_failure(done["failed"]), err=True)
        raise typer.Exit(1)


def show_proxies(done: dict[str, Any], wide: bool = False) -> None:
    """One row per score."""
    heads = {
        "tau": "tau", "within_cells": "within cells", "more_than_params": "more than params",
        "more_than_flops": "more than FLOPs", "params_held_fixed": "params held fixed",
    }  # fmt: skip
    rows = [
        {"score": name, "scored": figures["scored"], **{key: _interval(figures[key]) for key in heads}}
        for name, figures in done["proxies"].items()
    ]
    title = f"{done['table']}, {done['networks']} networks of {done['space']}: Kendall's tau with 95 % intervals; "
    title += f"{done['cells']} cells of equal depth and width, {done['pairs_within']} pairs within them"
    columns = {"score": "score", **heads, "scored": "scored"}
    console.table(title, rows, columns, wide, more="scored more_than_flops params_held_fixed")
    for name, notes in done["notes"].items():
        for note in notes:
            typer.echo(f"note: {name}: {note}")


def _interval(stated: dict[str, float | None]) -> str:
    value, low, high = (stated[key] for key in ("value", "low", "high"))
    return "-" if value is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def show(done: dict[str, Any], wide: bool = False) -> None:
    """Tables a person can read, one per setting."""
    from hwbench.accuracy.benchmark.base import PERCENT
    from hwbench.study.leaderboard import sample_words

    of = f"{', '.join(done['costs'])}" if done["costs"] else "latency"
    points = "points" if done["accuracy_unit"] == PERCENT else done["accuracy_unit"]
    for setting in dict.fromkeys(way for figures in done["strategies"].values() for way in figures):
        rows = [
            _row(name, figures[setting], done["marks"]) for name, figures in done["strategies"].items() if setting in figures
        ]
        title = f"{done['table']}, {len(done['devices'])} devices, {done['seeds']} seeds, {of} {setting}"
        title += f": hypervolume % / regret {points} at N evaluations"
        console.table(title, rows, {k: k for row in rows for k in row}, wide)
    for words in filter(None, [sample_words(done)]):
        typer.echo(layout.prose(words, layout.screen_width()))
    typer.echo(f"report: {Path(done['out']) / 'report.md'}; cards: {Path(done['out']) / 'cards'}")


def _failure(failed: list[dict[str, Any]]) -> str:
    first = failed[0]
    return (
        f"hwbench: {len(failed)} runs failed and count nowhere, first {first['strategy']} on {first['device']}, "
        f"setting {first['setting']}, seed {first['seed']}: {first['error']}"
    )


def _row(name: str, figures: dict[str, Any], marks: list[int]) -> dict[str, Any]:
    """Hypervolume and regret side by side at each mark that was reached."""
    row: dict[str, Any] = {"strategy": name}
    volume = figures.get("hypervolume", {}).get("value", [None] * len(marks))
    regret = figures.get("regret", {}).get("all", {}).get("value", [None] * len(marks))
    for mark, share, points in zip(marks, volume, regret, strict=True):
        if share is not None or points is not None:
            row[f"at {mark}"] = f"{_shown(share, 100)} / {_shown(points, 1)}"
    if "evaluations_to_goal" in figures:
        goal = figures["evaluations_to_goal"]
        row["to 99 %"] = f"{_shown(goal['median'], 1, 0)} ({goal['reached']} of {goal['runs']})"
    if "broken" in figures:
        row["budget broken %"] = _shown(next((v for v in reversed(figures["broken"]["value"]) if v is not None), None), 100, 1)
    row["own ms"] = figures["own_ms_per_evaluation"]
    return row


def _shown(value: float | None, times: float, digits: int = 2) -> str:
    return "-" if value is None else f"{value * times:.{digits}f}"
