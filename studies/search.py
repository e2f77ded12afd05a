"""Every strategy and the peers on NAS-Bench-201, in one run: who needs fewest evaluations, on devices ours was not tuned on.

    python -m studies.search --tables DIR --workers 2

Every stage keeps the log, report and cards of one validation in a folder of its own: OUT/whole (eight devices that measured
every cell, all costs paid for; stage `dear` adds strategies that take long), OUT/known (there, latency free), OUT/predicted
(there, latency from ten measurements of the device), OUT/partial (two devices that measured 1,999 of 15,625 cells; the others
count as invalid). Killed within a stage, it goes on after the last search of its log. The default strategy was tuned on the
devices of TUNED_ON, none of which is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hwbench
from hwbench.core import markdown
from hwbench.study.leaderboard import BUDGETS
from studies.harness import Results, Run, Study
from studies.options import TABLES, Option

TABLE = "nasbench201-cifar10"
TUNED_ON = ("1080ti_1", "pixel2", "gold_6226", "titanx_32", "eagle_gpu_855", "true_vpu", "rice_edgegpu")
WHOLE = ("essential_ph_1", "samsung_a50", "pixel3", "silver_4114", "eyeriss", "fpga", "titan_rtx_256", "2080ti_1")
PARTIAL = ("eagle_jetson", "true_a76")
QUICK = (
    "default", "random", "evolution", "regularised", "nsga2", "local", "lite", "linas-ridge",
    "pymoo-nsga2:population=20", "pymoo-nsga2:population=50",
)  # fmt: skip
"""Searched with budgets too."""
DEAR = (
    "hurdles", "optuna-nsga2", "reinforce", "differentiable-darts", "differentiable-proxyless", "differentiable-gdas",
    "bayesian", "linas-svr", "linas-stacked",
)  # fmt: skip
DEAREST = ("optuna-tpe", "optuna-tpe-multivariate")
"""Near 20 ms per evaluation and rising with their number."""
DEAREST_EVALUATIONS = 200
USES_KNOWN = ("default", "evolution:strict=1", "lite", "evolution", "random")
TINY_EVALUATIONS = 50


def validated(
    run: Run,
    part: str,
    devices: Sequence[str],
    strategies: Sequence[str],
    setting: str,
    budgets: Sequence[int] = BUDGETS,
    evaluations: int = 1000,
) -> dict[str, Any]:
    """One validation, in a folder of its own; the strategies of its log, with those that were there before."""
    seeds, workers = run.options.seeds, run.options.workers
    if run.tiny:
        devices, strategies, seeds, evaluations, budgets = devices[:1], strategies[:2], 1, TINY_EVALUATIONS, budgets[:1]
    with run.progress(part) as tick:
        done = hwbench.validate(
            TABLE, devices, strategies, seeds, evaluations, run.tables, run.out / part, [setting], budgets, workers, tick=tick
        )
    return {**{key: done[key] for key in ("devices", "seeds", "marks", "strategies")}, "folder": part}


def whole(run: Run) -> dict[str, Any]:
    """Quick strategies, every cost paid for."""
    return validated(run, "whole", WHOLE, QUICK, "paid")


def known(run: Run) -> dict[str, Any]:
    """Strategies that use it where latency is free."""
    return validated(run, "known", WHOLE, USES_KNOWN, "known")


def predicted(run: Run) -> dict[str, Any]:
    """The default strategy with latencies predicted from ten measurements."""
    return validated(run, "predicted", WHOLE, ["default"], "predicted")


def partial(run: Run) -> dict[str, Any]:
    """Quick strategies where most cells are missing."""
    return validated(run, "partial", PARTIAL, QUICK, "paid")


def dear(run: Run) -> dict[str, Any]:
    """Strategies that take long, on the devices of `whole`, without budgets."""
    validated(run, "whole", WHOLE, DEAREST, "paid", (), DEAREST_EVALUATIONS)
    return validated(run, "whole", WHOLE, DEAR, "paid", ())


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Hypervolume and regret of every part; intervals and figures are in the part's own report."""
    lines = []
    for name, found in results.items():
        lines += [f"## {name}: {len(found['devices'])} devices, {found['seeds']} seeds", ""]
        lines += [f"Median hypervolume, % of the exact one; [report with intervals]({found['folder']}/report.md).", ""]
        head = ["strategy", "latency", *(f"at {mark}" for mark in found["marks"]), "evaluations to 99 %", "own ms"]
        rows = [row(strategy, way, told) for strategy, ways in found["strategies"].items() for way, told in ways.items()]
        lines += [markdown.table(head, [each + [""] * (len(head) - len(each)) for each in rows], 2), ""]
    return "\n".join(lines)


def row(strategy: str, way: str, found: Mapping[str, Any]) -> list[str]:
    """One strategy's cells; a dash where only budgets were searched."""
    volume = found.get("hypervolume", {}).get("value")
    if volume is None:
        return [strategy, way, "-"]
    goal = found["evaluations_to_goal"]
    median = "-" if goal["median"] is None else f"{goal['median']:.0f}"
    reached = f"{median} ({goal['reached']} of {goal['runs']})"
    cells = ("-" if share is None else f"{100 * share:.2f}" for share in volume)
    return [strategy, way, *cells, reached, f"{found['own_ms_per_evaluation']:.2f}"]


STUDY = Study(
    "search",
    __doc__,
    "about an hour on 2 cores",
    {"whole": whole, "known": known, "predicted": predicted, "partial": partial, "dear": dear},
    report,
    (TABLES, Option("seeds", 20, "searches of every kind"), Option("workers", 2, "processes", fixed=False)),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
