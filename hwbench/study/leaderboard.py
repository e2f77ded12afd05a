"""The leaderboard of strategies after many searches: medians with intervals over seeds, paired comparisons, cards, a report.

Every number is computed from what single runs found. Intervals come from resampling seeds, all devices of a seed together:
runs of one seed begin alike. Settings are never mixed.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__
from hwbench.accuracy.benchmark.base import PERCENT
from hwbench.core import markdown
from hwbench.core.errors import UsageError
from hwbench.core.files import atomic_write, write_json
from hwbench.study import search_curves

MARKS = (50, 100, 200, 500, 1000)
POOL_MARKS = (5, 10, 20, 50, 100)
"""Evaluations after which a search is looked at; a search among the few networks of a sample earlier, and as often."""
BUDGETS: tuple[int, ...] = (10, 25, 50)
"""Percentiles of the latencies of a table that serve as budgets."""
GOAL = 0.99
"""Share of the exact hypervolume that counts as there."""
PLAIN: str = "predicted-plain"
UPPER: str = "predicted-upper"
"""Settings with predicted latency: the prediction, or its upper bound, stands for it."""
OURS, PEERS = "default", ("pymoo", "optuna")
"""Our own best strategy; how names of other people's programs begin."""
BOOTSTRAPS, LEAST_SEEDS = 2000, 3
"""Resamples of the seeds behind an interval; seeds below which there is none."""
PACKAGES = ("numpy", "scipy", "torch", "pymoo", "optuna", "scikit-learn")
"""Whose versions a card states."""
Statistic = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Run:
    """One search."""

    table: str
    device: str
    strategy: str
    setting: str
    budget: int | None
    """Percentile of the latencies that limits it; None searches the whole front."""
    seed: int
    evaluations: int


Results = Mapping[Run, Mapping[str, Any]]
"""What each run found."""


def summary(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """Strategy -> setting -> figures, over all devices and seeds; null where nothing was run or reached.

    Of several runs that differ in their evaluations only, the longest counts.
    """
    results = _longest(results)
    summaries: dict[str, dict[str, dict[str, Any]]] = {}
    for strategy, setting in dict.fromkeys((run.strategy, run.setting) for run in results):
        mine = {run: r for run, r in results.items() if (run.strategy, run.setting) == (strategy, setting)}
        front = [r["evaluations_to_goal"] for run, r in mine.items() if run.budget is None]
        about: dict[str, Any] = {
            "runs": len(mine),
            "evaluations": max(run.evaluations for run in mine),
            "own_ms_per_evaluation": float(np.median([r["own_ms_per_evaluation"] for r in mine.values()])),
        }
        if front:
            middle = float(np.median([np.inf if n is None else n for n in front]))
            about["hypervolume"] = _stated(grid(mine, "hypervolume"), _median)
            about["evaluations_to_goal"] = {
                "median": middle if np.isfinite(middle) else None,
                "reached": sum(n is not None for n in front),
                "runs": len(front),
            }
        limited = {run: r for run, r in mine.items() if run.budget is not None}
        budgets = sorted({run.budget for run in limited if run.budget is not None})
        if budgets:
            parts = {str(b): {run: r for run, r in limited.items() if run.budget == b} for b in budgets}
            about["regret"] = {
                name: {**_stated(values, _mean), "median": _stated(values, _median)["value"]}
                for name, part in [*parts.items(), ("all", limited)]
                for values in [grid(part, "regret")]
            }
        if budgets and setting in (PLAIN, UPPER):
            excess = grid(limited, "excess")
            about["broken"] = _stated(np.where(np.isnan(excess), np.nan, excess > 0), _mean)
            about["excess_where_broken"] = _stated(np.where(excess > 0, excess, np.nan), _mean)["value"]
        summaries.setdefault(strategy, {})[setting] = about
    return summaries


def compare(results: Results, ours: str, peer: str, setting: str = "paid") -> dict[str, Any]:
    """Ours less the peer's at each mark, paired over device, budget and seed: mean with 95 % interval, seeds resampled.

    Hypervolume is better where above 0, regret where below.

    Raises:
        UsageError: nothing was run for both in this setting.
    """
    results = _longest(results)
    compared: dict[str, Any] = {"ours": ours, "peer": peer, "setting": setting}
    for name in ("hypervolume", "regret"):
        both = [
            {run: r for run, r in results.items() if (run.strategy, run.setting) == (strategy, setting) and name in r}
            for strategy in (ours, peer)
        ]
        if not all(both):
            continue
        keys = sorted({_cell(run) for mine in both for run in mine}, key=str), sorted({run.seed for m in both for run in m})
        gap = grid(both[0], name, keys) - grid(both[1], name, keys)
        compared[name] = {**_stated(gap, _mean), "pairs": [int(n) for n in (~np.isnan(gap)).sum(axis=(0, 1))]}
    if len(compared) == 3:
        raise UsageError(f"'{ours}' and '{peer}' have no runs in setting '{setting}' to compare.")
    return compared


def grid(results: Results, name: str, keys: tuple[Sequence[Any], Sequence[int]] | None = None) -> np.ndarray:
    """float[seeds, cells, marks] of what runs of one strategy and setting found; NaN where they did not.

    A cell is a device with a budget.
    """
    mine = [run for run in results if name in results[run]]
    cells, seeds = keys or (sorted({_cell(run) for run in mine}, key=str), sorted({run.seed for run in mine}))
    array = np.full((len(seeds), len(cells), len(MARKS)), np.nan)
    for run in mine:
        values = np.array(results[run][name], float)  # None becomes NaN
        array[seeds.index(run.seed), cells.index(_cell(run)), : len(values)] = values
    return array


def _longest(results: Results) -> Results:
    ordered = sorted(results, key=lambda run: run.evaluations)
    last = {replace(run, evaluations=0): run for run in ordered}
    kept = set(last.values())
    return {run: result for run, result in results.items() if run in kept}


def _cell(run: Run) -> tuple[str, int | None]:
    return run.device, run.budget


def _stated(values: np.ndarray, statistic: Statistic) -> dict[str, list[float | None]]:
    """A statistic over seeds and cells at each mark, with its 95 % interval from resampled seeds."""
    n = len(values)
    drawn = np.random.default_rng(0).integers(0, n, (BOOTSTRAPS, n))
    stated: dict[str, list[float | None]] = {"value": [], "low": [], "high": []}
    for column in np.moveaxis(values, 2, 0):
        if np.isnan(column).all():
            for each in stated.values():
                each.append(None)
            continue
        stated["value"].append(float(statistic(column.reshape(1, -1))[0]))
        low: float | None = None
        high: float | None = None
        if n >= LEAST_SEEDS:
            spread = statistic(column[drawn].reshape(BOOTSTRAPS, -1))
            low, high = (float(edge) for edge in np.nanquantile(spread, (0.025, 0.975)))
        stated["low"].append(low)
        stated["high"].append(high)
    return stated


def _mean(values: np.ndarray) -> np.ndarray:
    """Of each row, without what is missing; NaN where all is."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1))


def _median(values: np.ndarray) -> np.ndarray:
    """Of each row, without what is missing; NaN where all is."""
    ordered, count = np.sort(values, axis=1), (~np.isnan(values)).sum(axis=1)  # NaN is sorted last
    rows = np.arange(len(values))
    return np.asarray((ordered[rows, np.maximum(count - 1, 0) // 2] + ordered[rows, count // 2]) / 2)


def publish(
    results: Results, about: Mapping[str, Any], failed: Sequence[Mapping[str, Any]], asked: Sequence[str], out: Path
) -> dict[str, Any]:
    """Writes summary.json, report.md and a card for each asked strategy; returns the summary.

    Args:
        results: Of one table, the same devices and seeds.
        about: What is the same for all of them: table, devices, unit of accuracies, pool, marks, seeds, command.
        failed: Runs that found nothing, with their error.
        asked: Strategies that get a card.
        out: Folder.
    """
    document = document_of(results, about, failed, out)
    strategies, settings = document["strategies"], dict.fromkeys(run.setting for run in results)
    write_json(out / "summary.json", document)
    for setting in settings:
        there = {name: ways[setting] for name, ways in strategies.items() if "hypervolume" in ways.get(setting, {})}
        if there:
            stated = {name: found["hypervolume"] for name, found in there.items()}
            peers = [name for name in there if name.startswith(PEERS)]
            longest = max(found["evaluations"] for found in there.values())
            atomic_write(out / f"{setting}.svg", search_curves.curves(about["marks"], stated, OURS, peers, longest))
    atomic_write(out / "report.md", report_of(document))
    for name in asked:
        if name in strategies:
            card = {"kind": "validation", "strategy": name, **about, "goal": GOAL}
            write_json(_card_path(out, name), {**card, "figures": strategies[name], "versions": _versions()})
    return document


def document_of(results: Results, about: Mapping[str, Any], failed: Sequence[Mapping[str, Any]], out: Path) -> dict[str, Any]:
    """All figures of these runs."""
    strategies = summary(results)
    comparisons = _comparisons(results, strategies, dict.fromkeys(run.setting for run in results))
    found = {"strategies": strategies, "comparisons": comparisons, "failed": list(failed), "out": str(out)}
    return {**about, "goal": GOAL, **found}


def _comparisons(
    results: Results, strategies: Mapping[str, Mapping[str, Any]], settings: Iterable[str]
) -> list[dict[str, Any]]:
    """Our own strategy against each other one, in every setting that both were run in; a bound alone is no setting."""
    return [
        compare(results, OURS, peer, setting)
        for setting in settings
        if setting != UPPER and setting in strategies.get(OURS, {})
        for peer, ways in strategies.items()
        if peer != OURS and setting in ways
    ]


def _card_path(out: Path, strategy: str) -> Path:
    return out / "cards" / f"{re.sub(r'[^A-Za-z0-9_.,=-]+', '-', strategy)}.json"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "hwbench": __version__}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


# The report


def sample_words(document: Mapping[str, Any]) -> str:
    """What a search among the networks of a sample is; nothing where the table holds its space."""
    if not document["pool"]:
        return ""
    known = ", ".join(f"{n} with {cost}" for cost, n in document["pool"].items())
    return f"{document['table']} holds a sample of its space ({known}): strategies choose among these networks only."


def report_of(document: Mapping[str, Any]) -> str:
    """Markdown: one table per setting and quantity, paired differences, what failed."""
    parts = [
        markdown.heading(f"Search validated on {document['table']}"),
        f"{len(document['devices'])} devices ({', '.join(document['devices'])}), {document['seeds']} seeds. "
        "Brackets are 95 % intervals over seeds.",
        *filter(None, [sample_words(document)]),
        markdown.code(document["command"]),
    ]
    for setting in dict.fromkeys(setting for values in document["strategies"].values() for setting in values):
        parts += _setting(setting, document)
    if document["failed"]:
        told = (f"{f['strategy']} on {f['device']}, {f['setting']}, seed {f['seed']}: {f['error']}" for f in document["failed"])
        parts += [markdown.heading("Failed", 2), markdown.bullets(told)]
    return markdown.document(*parts)


def _setting(setting: str, document: Mapping[str, Any]) -> list[str]:
    mine = {name: values[setting] for name, values in document["strategies"].items() if setting in values}
    parts = [markdown.heading(f"Setting `{setting}`", 2)]
    if any("hypervolume" in values for values in mine.values()):
        parts.append(
            markdown.picture("what is missing after so many evaluations, with 95 % intervals over seeds", f"{setting}.svg")
        )
    marks, unit = document["marks"], document["accuracy_unit"]
    points = "accuracy points" if unit == PERCENT else unit
    for name, table in (("hypervolume", _hypervolumes), ("regret", partial(_regrets, points)), ("broken", _broken)):
        there = {strategy: values for strategy, values in mine.items() if name in values}
        parts += table(marks, there) if there else []
    pairs = [pair for pair in document["comparisons"] if pair["setting"] == setting]
    if pairs:
        parts.append(markdown.heading(f"`{OURS}` less each peer, setting `{setting}`", 3))
        parts += [*_pairs("hypervolume", points, marks, pairs), *_pairs("regret", points, marks, pairs)]
    return parts


Figures = Mapping[str, Mapping[str, Any]]
"""Strategy -> its figures in one setting."""


def _hypervolumes(marks: Sequence[int], mine: Figures) -> list[str]:
    title = f"Median hypervolume, % of the exact one; evaluations to {GOAL:.0%} (runs that reached it); own CPU ms of each"
    rows = []
    for strategy, values in mine.items():
        goal = values["evaluations_to_goal"]
        there = f"{_number(goal['median'], 0)} ({goal['reached']} of {goal['runs']})"
        rows.append([strategy, *_brackets(values["hypervolume"], 100), there, f"{values['own_ms_per_evaluation']:.2f}"])
    return [title, markdown.table([*_columns("strategy", marks), f"to {GOAL:.0%}", "ms"], rows)]


def _regrets(points: str, marks: Sequence[int], mine: Figures) -> list[str]:
    rows = []
    for strategy, values in mine.items():
        regret = values["regret"]
        rows.append([strategy, *_brackets(regret["all"])])
        for budget in (b for b in regret if b != "all"):
            rows.append([f"{strategy}, {budget}th percentile", *(_number(value) for value in regret[budget]["value"])])
    title = f"Mean regret, {points}, over all budgets; at each budget without its interval"
    return [title, markdown.table(_columns("strategy", marks), rows)]


def _broken(marks: Sequence[int], mine: Figures) -> list[str]:
    rows = []
    for strategy, values in mine.items():
        far = [None if value is None else 100 * value for value in values["excess_where_broken"]]
        rows.append([strategy, *_brackets(values["broken"], 100)])
        rows.append([f"{strategy}, how far", *(_number(value) for value in far)])
    title = "Named winners that break the true budget, %; how far those break it, %"
    return [title, markdown.table(_columns("strategy", marks), rows)]


def _pairs(name: str, points: str, marks: Sequence[int], pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """One row per peer, and the smallest lead over any of them."""
    pairs = [pair for pair in pairs if name in pair]
    if not pairs:
        return []
    told, times, sign = {
        "hypervolume": ("Hypervolume, % of the exact one: better above 0", 100, 1),
        "regret": (f"Regret, {points}: better below 0", 1, -1),
    }[name]
    closest = []
    for i in range(len(MARKS)):
        there = [pair for pair in pairs if pair[name]["value"][i] is not None]
        nearest = min(there, key=lambda pair: sign * pair[name]["value"][i], default=None)
        closest.append("-" if nearest is None else f"{_bracket(nearest[name], i, times)} {nearest['peer']}")
    rows = [[pair["peer"], *_brackets(pair[name], times)] for pair in pairs]
    table = markdown.table(_columns("peer", marks), [*rows, ["**closest peer**", *closest]])
    return [f"{told}; means of paired differences.", table]


def _columns(first: str, marks: Sequence[int]) -> list[str]:
    return [first, *(f"at {mark}" for mark in marks)]


def _brackets(stated: Mapping[str, Any], times: float = 1.0) -> list[str]:
    """A value with its interval at every mark."""
    return [_bracket(stated, i, times) for i in range(len(MARKS))]


def _bracket(stated: Mapping[str, Any], at: int, times: float = 1.0) -> str:
    value, low, high = (stated[key][at] for key in ("value", "low", "high"))
    if value is None:
        return "-"
    interval = "" if low is None else f" [{low * times:.2f}, {high * times:.2f}]"
    return f"{value * times:.2f}{interval}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
