"""hwbench verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    """Measure the finalists and random networks end to end, beside their predictions."""
    import hwbench

    with console.progress("measuring networks") as tick:
        done = hwbench.verify(result, random, seed, workspace, tick=tick)
    if json:
        console.emit_json(done)
        return
    winner, kept = done["winner"], done["kept"]
    rows = [{"estimate": name, **{k: v for k, v in found.items() if k != "bias"}} for name, found in done["accuracy"].items()]
    console.table(f"Estimates against measurements ({done['accuracy_on']}, {done['statistic']})", rows)
    if len(done["limits"]) > 1:
        names = {
            "name": "limit",
            "most": "at most",
            "winner": "winner has",
            "kept": "kept",
            "finalists": "finalists",
            "how": "how",
        }
        shown = [
            {**each, "finalists": f"{each['finalists']} of {each['of']}" if each["of"] else None} for each in done["limits"]
        ]
        console.table("Limits of the search, checked again", shown, names)
    console.predictor("latency_ms", done["space"], done["predictor"])
    typer.echo(
        f"winner: predicted {winner['predicted_ms']:.2f} ms, measured {winner['measured_ms']:.2f} ms "
        f"(spread {winner['min_spread'] or float('nan'):.1%}), p50 {winner['latency_median_ms']:.2f} ms, "
        f"budget {done['budget_ms']:g} ms "
        f"{'kept' if kept['winner'] else 'BROKEN'}; finalists within the budget: {kept['finalists']} of {kept['of']}"
    )
    typer.echo(f"next: hwbench report {result} --workspace {workspace}")
