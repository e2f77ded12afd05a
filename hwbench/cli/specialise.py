"""hwbench specialise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

SHOWN = 8
"""Devices up to which a cross table fits a terminal."""


def run(
    table: Annotated[str, typer.Option("--table", help="Benchmark table (hwbench list tables).")],
    budget_percentile: Annotated[
        list[float] | None,
        typer.Option("--budget-percentile", help="Of each device's latencies; repeat for several.", show_default="10, 25, 50"),
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", help="Only these devices; repeat.", show_default="all")
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="Leave out devices that did not measure every network of the table.")
    ] = False,
    tables: options.Tables = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for specialise.md, .csv, .json and pictures.")] = Path(
        "specialised"
    ),
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """What is lost by using on one device the winner of another, for every pair of devices."""
    import hwbench
    from hwbench.study.specialise import PERCENTILES

    with console.progress("comparing winners"):
        done = hwbench.specialise(table, budget_percentile or PERCENTILES, tables, device or (), out, complete)
    if json:
        console.emit_json(done)
        return
    show(done, wide)
    typer.echo(f"report: {out / 'specialise.md'}; every pair: {out / 'specialise.csv'}")


def show(done: dict[str, Any], wide: bool = False) -> None:
    """The cross tables, where they fit a terminal, and the shares of pairs that lose."""
    from hwbench.study.specialise import cells

    table, devices, limits = done["table"], done["devices"], done["limits"]
    for budget in done["budgets"] if len(devices) <= SHOWN else []:
        title = f"{table}, budget at percentile {budget['budget_percentile']:g}"
        lines = zip(devices, cells(budget), strict=True)
        rows = [{"winner of": name, **dict(zip(devices, line, strict=True))} for name, line in lines]
        console.table(f"{title}: points lost within the budget (-), latency above it (+) on", rows, wide=wide)
    shares = {"hurt": "hurt %", "lose_points": f"lack over {limits['points']:g} points %",
              "lose_latency": f"over {limits['latency']:.0%} too slow %", "broken": "break the budget %"}  # fmt: skip
    console.table(
        f"{table}, {len(devices)} devices, {done['networks']} networks, {done['pairs']} pairs: another device's winners",
        [
            {"budget percentile": f["budget_percentile"], **{head: round(100 * f[name], 1) for name, head in shares.items()}}
            for f in done["budgets"]
        ],
        wide=wide,
    )
