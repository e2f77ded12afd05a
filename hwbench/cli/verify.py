"""hwbench verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    context: typer.Context,
    result: Annotated[Path, typer.Argument(help="Folder a search wrote.")],
    random: Annotated[int, typer.Option("--random", help="Random networks measured beside the finalists.")] = 12,
    space: options.SpaceOfSearch = None,
    workspace: options.Workspace = options.HERE,
    seed: options.Seed = 0,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Measure the finalists and random networks end to end where the device is, beside their predictions."""
    import hwbench
    from hwbench.optimize.cost_kind import LATENCY
    from hwbench.optimize.result import SearchResult

    if LATENCY not in SearchResult.read(result, space).settings.bounds:
        options.refuse(context, ("random", "seed"), f"The search in {result} limits no latency of its device, none is measured")
    with console.progress("measuring networks") as tick:
        done = hwbench.verify(result, random, seed, workspace, tick=tick, space=space)
    if json:
        console.emit_json(done)
        return
    _show(done, wide)
    console.next_step("report", result, done["space"], workspace)


def _show(done: dict[str, Any], wide: bool) -> None:
    """What was found, for people."""
    if done["accuracy"] is not None:
        rows = [{"name": name, **console.error_row(told)} for name, told in done["accuracy"].items()]
        title = f"Estimates against measurements ({done['accuracy_on']}, {done['statistic']})"
        columns = console.error_columns({"name": "estimate"}, rows)
        console.table(title, rows, columns, wide, more=f"{console.RARELY_ASKED} bias")
    if len(done["limits"]) > 1 or done["predictor"] is None:
        _limits(done["limits"], wide)
    if done["predictor"] is not None:
        console.predictor("latency_ms", done["space"], done["predictor"])
    if not done["measured"]:
        console.say(_not_measured(done))
        return
    console.say(_winner(done) if done["predictor"] is not None else _counted(done))
    if any(each["kept"] is False for each in done["limits"]):
        console.say(_instead(done["best_kept"]))


def _limits(limits: list[dict[str, Any]], wide: bool) -> None:
    """Every limit of the search, checked again."""
    names = {
        "name": "limit",
        "most": "at most",
        "winner": "winner has",
        "kept": "kept",
        "finalists": "finalists",
        "how": "how",
    }
    shown = [{**each, "finalists": f"{each['finalists']} of {each['of']}" if each["of"] else None} for each in limits]
    console.table("Limits of the search, checked again", shown, names, wide)


def _winner(done: dict[str, Any]) -> str:
    """Predicted and measured, the budget's verdict, and beside it what puts the measurement in doubt."""
    winner = done["winner"]
    limit = next(each for each in done["limits"] if each["name"] == "latency_ms")
    word = "budget" if limit is done["limits"][0] else "limit"
    doubt = next((f" ({_doubt(each)})" for each in done["doubtful"] if each["finalist"] == 0), "")
    return (
        f"winner: predicted {winner['predicted_ms']:.2f} ms, measured {winner['measured_ms']:.2f} ms "
        f"(spread {winner['min_spread'] or float('nan'):.1%}), p50 {winner['latency_median_ms']:.2f} ms, "
        f"{word} {limit['most']:g} ms{_of_largest(done)} "
        f"{'kept' if limit['kept'] else 'BROKEN'}{doubt}; finalists within the {word}: {limit['finalists']} of {limit['of']}"
    )


def _counted(done: dict[str, Any]) -> str:
    """The verdict where the budget is another cost than the device's latency."""
    first = done["limits"][0]
    return (
        f"winner: {first['name']} {first['winner']:.6g} ({first['how']}), budget {first['most']:g} "
        f"{'kept' if first['kept'] else 'BROKEN'}; finalists within the budget: {first['finalists']} of {first['of']}"
    )


def _of_largest(done: dict[str, Any]) -> str:
    """Which share of the largest architecture's latency the budget is, where that was asked for."""
    return "" if done["budget_factor"] is None else f" ({done['budget_factor']:g}x of the largest)"


def _doubt(each: dict[str, Any]) -> str:
    """Why a measurement is in doubt."""
    spread = "unknown" if each["spread"] is None or each["spread"] != each["spread"] else f"{each['spread']:.1%}"
    return f"{each['verdict']}, spread {spread} over {each['processes']} processes: {each['reason']}"


def _instead(best: dict[str, Any] | None) -> str:
    """What is offered in place of a winner that broke a limit."""
    import json

    if best is None:
        return "No finalist kept every limit: search again with a smaller budget and another --out."
    told = ", ".join(f"{name} {value:.6g}" for name, value in best["costs"].items())
    if "measured_ms" in best:
        told = f"predicted {best['predicted_ms']:.2f} ms, measured {best['measured_ms']:.2f} ms ({best['verdict']})"
    return (
        f"best finalist that kept it: number {best['finalist'] + 1}, {told}, score {best['accuracy']:.4g}: "
        f"{json.dumps(best['architecture'])}"
    )


def _not_measured(done: dict[str, Any]) -> str:
    """That the budget's cost was not measured, why, and what is known all the same."""
    winner, first = done["winner"], done["limits"][0]
    known = f"{first['name']} {winner['costs'][first['name']]:.6g}, budget {first['most']:g}"
    if "predicted_ms" in winner:
        known = f"{winner['predicted_ms']:.2f} ms, at most {winner['upper_ms']:.2f} ms, budget {done['budget_ms']:g} ms"
        known += _of_largest(done)
    return f"The winner is only predicted: {known}.\nNOT MEASURED: {done['why']}"
