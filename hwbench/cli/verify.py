"""hwbench verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    result: Annotated[Path, typer.Argument(help="Folder a search wrote.")],
    random: Annotated[int, typer.Option("--random", help="Random networks measured beside the finalists.")] = 12,
    workspace: options.Workspace = options.HERE,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure the finalists and random networks end to end where the device is, beside their predictions."""
    import hwbench

    with console.progress("measuring networks") as tick:
        done = hwbench.verify(result, random, seed, workspace, tick=tick)
    if json:
        console.emit_json(done)
        return
    if not done["measured"]:
        _limits(done)
        console.predictor("latency_ms", done["space"], done["predictor"])
        typer.echo(_not_measured(done))
        typer.echo(f"next: hwbench report {result} --workspace {workspace}")
        return
    rows = [{"estimate": name, **{k: v for k, v in found.items() if k != "bias"}} for name, found in done["accuracy"].items()]
    console.table(f"Estimates against measurements ({done['accuracy_on']}, {done['statistic']})", rows)
    _limits(done)
    console.predictor("latency_ms", done["space"], done["predictor"])
    typer.echo(_winner(done))
    if not done["kept"]["winner"]:
        typer.echo(_instead(done["best_kept"]))
    typer.echo(f"next: hwbench report {result} --workspace {workspace}")


def _limits(done: dict[str, Any]) -> None:
    """Further limits than the budget, where there are any."""
    if len(done["limits"]) < 2:
        return
    names = {
        "name": "limit",
        "most": "at most",
        "winner": "winner has",
        "kept": "kept",
        "finalists": "finalists",
        "how": "how",
    }
    shown = [{**each, "finalists": f"{each['finalists']} of {each['of']}" if each["of"] else None} for each in done["limits"]]
    console.table("Limits of the search, checked again", shown, names)


def _winner(done: dict[str, Any]) -> str:
    """Predicted and measured, the budget's verdict, and beside it what puts the measurement in doubt."""
    winner, kept = done["winner"], done["kept"]
    doubt = next((f" ({_doubt(each)})" for each in done["doubtful"] if each["finalist"] == 0), "")
    return (
        f"winner: predicted {winner['predicted_ms']:.2f} ms, measured {winner['measured_ms']:.2f} ms "
        f"(spread {winner['min_spread'] or float('nan'):.1%}), p50 {winner['latency_median_ms']:.2f} ms, "
        f"budget {done['budget_ms']:g} ms "
        f"{'kept' if kept['winner'] else 'BROKEN'}{doubt}; finalists within the budget: {kept['finalists']} of {kept['of']}"
    )


def _doubt(each: dict[str, Any]) -> str:
    """Why a measurement is in doubt."""
    spread = "unknown" if each["spread"] is None or each["spread"] != each["spread"] else f"{each['spread']:.1%}"
    return f"{each['verdict']}, spread {spread} over {each['processes']} processes: {each['reason']}"


def _instead(best: dict[str, Any] | None) -> str:
    """What is offered in place of a winner that broke the budget."""
    import json

    if best is None:
        return "No finalist kept every limit: search again with a smaller budget and another --out."
    return (
        f"best finalist that kept it: number {best['finalist'] + 1}, predicted {best['predicted_ms']:.2f} ms, measured "
        f"{best['measured_ms']:.2f} ms ({best['verdict']}), accuracy by the proxy {best['accuracy']:.4g}: "
        f"{json.dumps(best['architecture'])}"
    )


def _not_measured(done: dict[str, Any]) -> str:
    """That nothing was measured, why, and what is known all the same."""
    winner = done["winner"]
    return (
        f"NOT MEASURED: {done['why'].rstrip('.')}. The winner is only predicted: {winner['predicted_ms']:.2f} ms, at most "
        f"{winner['upper_ms']:.2f} ms, budget {done['budget_ms']:g} ms."
    )
