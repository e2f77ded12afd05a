"""Claims about search and sampling, held against tables where everything was trained before: look-ups, no training.

    python -m studies.table_claims --tables DIR --out reports/table-claims-DATE

The rules were fixed before (claims 19, 23, 24 and 25 of the digest of the papers hwbench is built from):

19  Best of n: more samples help, with shrinking gains, and DSS++ converges sooner than DSS. Stages `best-of-n TABLE`.
23  LINAS reaches 95 % of the exact hypervolume in fewer evaluations than random search and NSGA-II. Stages `linas TABLE COST`.
24  A reward of zero, untrained, beyond the budget saves trainings at an equal final reward. Stages `zero-reward DEVICE`.
25  Dynamic hurdles find a better network than a plain tournament in equally many epochs. Stages `hurdles TABLE`.

`strategies TABLE` validates strategies on the tables that hold a sample of their space, as pools. Verdicts are the rules':
`holds` where the 95 % interval is on its side of 0, `fails` where it is on the other side, else `open`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import hwbench
from hwbench.accuracy.benchmark.base import Rows
from hwbench.core import pareto, registry
from hwbench.core.stats import kendall_tau
from hwbench.optimize.objective.base import make_objective
from hwbench.optimize.pool import Pool
from hwbench.optimize.problem import MAX, MIN, Problem
from hwbench.optimize.strategy.base import Strategy
from hwbench.study import table_costs, trace, validate
from studies import table_claims_report
from studies.harness import Run, Study
from studies.options import TABLES, WORKSPACE, Option
from studies.table_scores import Scores, scored

CELLS = "nasbench201-cifar10"
BOOTSTRAPS = 4000


def difference(pairs: Any) -> dict[str, Any]:
    """Mean of paired differences with its 95 % interval, pairs resampled."""
    values = np.asarray(pairs, float)
    drawn = np.random.default_rng(0).integers(0, len(values), (BOOTSTRAPS, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
    return {"value": float(values.mean()), "low": float(low), "high": float(high), "pairs": len(values)}


def seeds(run: Run) -> range:
    """Of this run."""
    return range(3 if run.tiny else run.options.seeds)


def made(name: str, problem: Problem, seed: int) -> Strategy:
    """A strategy of that seed."""
    strategy: Strategy = registry.make("strategy", name, problem=problem, rng=np.random.default_rng(seed))
    return strategy


# 19

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def best_of_n(run: Run, table: str) -> dict[str, Any]:
    """True accuracy of the best-scored of n networks, over n."""
    truth, scores = scored(run, table)
    n, repeats = len(truth), 5 if run.tiny else run.options.repeats
    # Beyond half of the table draws have too much in common.
    counts = [*(count for count in COUNTS if count < n // 2), n // 2]
    orders = [np.random.default_rng(seed).permutation(n) for seed in range(repeats)]
    reached = {
        name: np.array([[truth[chosen(values, order[:k])] for k in counts] for order in orders])
        for name, values in scores.items()
    }
    finals = {name: float(truth[chosen(values, np.arange(n))]) for name, values in scores.items()}
    middle = int(np.argmin(np.abs(np.log(counts) - np.log(n / 2) / 2)))
    figures = {
        name: {
            "curve": values.mean(axis=0).tolist(),
            "final": finals[name],
            "help": difference(values[:, -1] - values[:, 0]),
            "shrink": difference((values[:, middle] - values[:, 0]) - (values[:, -1] - values[:, middle])),
        }
        for name, values in reached.items()
    }
    if {"dss", "dss-plus-plus"} <= set(reached):
        one, two = (np.abs(reached[name] - finals[name]).mean(axis=1) for name in ("dss", "dss-plus-plus"))
        figures["dss-plus-plus"]["sooner"] = difference(one - two)
    return {
        "counts": counts, "networks": n, "repeats": repeats, "middle": counts[middle], "mean": float(truth.mean()),
        "best": [float(np.mean([truth[order[:k]].max() for order in orders])) for k in counts], "scores": figures,
    }  # fmt: skip


def chosen(values: Scores, drawn: np.ndarray) -> int:
    """The best-scored of some networks; of several terms, ranks among these are added."""
    if values.ndim == 1:
        return int(drawn[np.argmax(values[drawn])])
    from scipy.stats import rankdata

    return int(drawn[np.argmax(rankdata(values[:, drawn], axis=1).sum(axis=0))])


# 23

LINAS = ("linas-ridge", "linas-svr", "linas-stacked")
BESIDE = ("random", "nsga2")
SHARE, LINAS_EVALUATIONS = 0.95, 300


def linas(run: Run, table: str, cost: str) -> dict[str, Any]:
    """Evaluations until 95 % of the exact hypervolume, accuracy and cost both paid for."""
    rows, pool = table_costs.read(table, run.tables, [cost]), validate.pool_of(table, cost, run.tables)
    mine, column = rows.usable(cost), rows.cost_of(cost)
    exact = np.stack([column[mine], -rows.accuracy[mine]], axis=1)
    reference = exact.max(axis=0)
    whole = pareto.hypervolume(exact, reference)
    problem = Problem(registry.get("benchmark", table).genes, {"accuracy": MAX, "cost": MIN}, pool=pool)
    query = trace.of_table(rows, mine, {"cost": column})
    names = (*BESIDE, *(LINAS[:1] if run.tiny else LINAS))
    needed: dict[str, list[int]] = {name: [] for name in names}
    own: dict[str, list[float]] = {name: [] for name in names}
    with run.progress(f"{table}, {cost}") as tick:
        for seed in seeds(run):
            for name in names:
                done = trace.run(made(name, problem, seed), query, 50 if run.tiny else LINAS_EVALUATIONS)
                losses = np.stack([done.values["cost"], -done.values["accuracy"]], axis=1)
                there = np.flatnonzero(pareto.hypervolume_trace(losses, reference) >= SHARE * whole)
                needed[name].append(int(there[0]) + 1 if len(there) else len(losses) + 1)
                own[name].append(1e3 * done.own_seconds / len(losses))
            tick(seed + 1, len(seeds(run)))
    return {
        "networks": len(mine), "pool": pool is not None, "seeds": len(seeds(run)), "evaluations": LINAS_EVALUATIONS,
        "median": {name: float(np.median(values)) for name, values in needed.items()},
        "own_ms_per_evaluation": {name: float(np.median(values)) for name, values in own.items()},
        "fewer": {
            f"{name} than {other}": difference(np.array(needed[other]) - np.array(needed[name]))
            for name in names if name in LINAS for other in BESIDE
        },
    }  # fmt: skip


# 24

CONTROLLERS, REWARDS = ("random", "reinforce"), ("zeroed", "mnasnet-hard", "constrained")
PERCENTILES = (5, 25)
SAMPLED = 300


def zero_reward(run: Run, device: str) -> dict[str, Any]:
    """Trainings and the best network within the budget, by reward and controller."""
    rows: Rows = registry.get("benchmark", CELLS).read(run.tables)
    mine, latency = rows.usable(device), rows.latency_of(device)
    rewards = [(controller, reward) for controller in CONTROLLERS for reward in REWARDS]
    found: dict[str, Any] = {}
    with run.progress(device) as tick:
        for at, percentile in enumerate(PERCENTILES):
            limit = float(np.percentile(latency[mine], percentile))
            best = float(rows.accuracy[mine][latency[mine] <= limit].max())
            runs = {
                (*each, seed): controlled(rows, latency, limit, *each, seed, 60 if run.tiny else SAMPLED)
                for each in rewards
                for seed in seeds(run)
            }
            for controller, reward in rewards:
                zeroed, others = ([runs[controller, name, seed] for seed in seeds(run)] for name in ("zeroed", reward))
                found[f"{percentile} {controller} {reward}"] = {
                    "percentile": percentile, "controller": controller, "reward": reward,
                    "trained": float(np.mean([each["trained"] for each in others])),
                    "lacks": float(np.mean([best - each["best"] for each in others])),
                    "saved": difference([1 - a["trained"] / b["trained"] for a, b in zip(zeroed, others, strict=True)]),
                    "zeroed_better": difference([a["best"] - b["best"] for a, b in zip(zeroed, others, strict=True)]),
                }  # fmt: skip
            tick(at + 1, len(PERCENTILES))
    return {"seeds": len(seeds(run)), "sampled": SAMPLED, "cells": found}


def controlled(
    rows: Rows, latency: np.ndarray, limit: float, controller: str, reward: str, seed: int, sampled: int
) -> dict[str, Any]:
    """One controller's samples: how many were trained, and the best accuracy within the budget (the worst, if none was).

    Under `zeroed` only what keeps the budget is trained: its reward is known before. The others need every accuracy.
    """
    objective = make_objective(reward, {"latency_ms": limit})
    problem = Problem(registry.get("benchmark", CELLS).genes, objective.objectives, objective.limits)
    strategy, trained, best, asked = made(controller, problem, seed), 0, float(np.nanmin(rows.accuracy)), 0
    while asked < sampled and len(genes := strategy.ask(min(trace.BATCH, sampled - asked))):
        accuracy = rows.at(genes, rows.accuracy)
        values = {"accuracy": accuracy, "latency_ms": np.where(np.isnan(accuracy), np.nan, rows.at(genes, latency))}
        strategy.tell(genes, objective.told(values))
        kept = values["latency_ms"] <= limit
        trained += int((kept if reward == "zeroed" else ~np.isnan(accuracy)).sum())
        best = float(max([best, *accuracy[kept]]))
        asked += len(genes)
    return {"trained": trained, "best": best}


# 25

HURDLES = {CELLS: ((0.06,), (20, 50, 100, 200)), "nasbench-nlp": ((0.02, 0.06, 0.1, 0.2, 0.4), (5, 10, 20, 50))}
"""Table -> (shares of a training before the hurdle, budgets in whole trainings)."""
POPULATION = 20


def hurdles(run: Run, table: str) -> dict[str, Any]:
    """Dynamic hurdles and the same evolution without them, at equal numbers of epochs."""
    rows: Rows = registry.get("benchmark", table).read(run.tables)
    shares, budgets = HURDLES[table]
    mine = np.flatnonzero(~np.isnan(rows.accuracy))
    pool = Pool(rows.genes[mine]) if table != CELLS else None
    problem = Problem(registry.get("benchmark", table).genes, {"accuracy": MAX}, pool=pool)
    names = {share: f"dynamic-hurdles:population={POPULATION},least={share:g}" for share in (*shares, 1.0)}
    best: dict[float, list[list[float]]] = {share: [] for share in names}
    query, worst = trace.of_table(rows, mine, {}), float(rows.accuracy[mine].min())
    with run.progress(table) as tick:
        for seed in seeds(run):
            for share, name in names.items():
                done = trace.run(made(name, problem, seed), query, budgets[-1])
                whole = np.where(done.share == 1, done.values["accuracy"], np.nan)
                best[share].append([float(np.nanmax(np.append(whole[: done.upto(budget)], worst))) for budget in budgets])
            tick(seed + 1, len(seeds(run)))
    plain = np.array(best[1.0])
    return {
        "networks": len(mine), "pool": pool is not None, "seeds": len(seeds(run)), "unit": rows.unit, "budgets": budgets,
        "best": float(rows.accuracy[mine].max()), "plain": plain.mean(axis=0).tolist(),
        "better": {str(share): [difference(each) for each in (np.array(best[share]) - plain).T] for share in shares},
        "early": early(rows, mine),
    }  # fmt: skip


def early(rows: Rows, networks: np.ndarray) -> list[dict[str, float]]:
    """How well brief trainings rank: tau with the final accuracy, over all networks and over the better tenth of them."""
    final = rows.accuracy[networks]
    top = final >= np.quantile(final, 0.9)
    return [
        {
            "share": share,
            "tau": kendall_tau(rows.partial[share][networks], final),
            "top": kendall_tau(rows.partial[share][networks][top], final[top]),
        }
        for share in sorted(rows.partial)
    ]


# Pools

STRATEGIES = ("default", "random", "regularised", "local", "nsga2", "linas-ridge")
POOLS = {
    "vitbench-autoformer": "flops_m", "vitbench-pit": "flops_m", "nasbench-bert": "flops_m", "nasbench-nlp": "params_m",
}  # fmt: skip
"""Table that holds a sample -> the cost of its front."""


def strategies(run: Run, table: str) -> dict[str, Any]:
    """Strategies on a table that holds a sample, the cost known to them."""
    names, evaluations = (STRATEGIES[:2], 10) if run.tiny else (STRATEGIES, 100)
    with run.progress(table) as tick:
        done = hwbench.validate(
            table, strategy=names, seeds=len(seeds(run)), evaluations=evaluations, tables=run.tables, settings=["known"],
            out=run.out / "strategies" / table, budgets=[10, 50], cost=POOLS[table], tick=tick,
        )  # fmt: skip
    return {
        key: done[key] for key in ("costs", "pool", "seeds", "marks", "strategies", "comparisons", "failed", "accuracy_unit")
    }


BEST_OF_N = ("nasbench-nlp", "nasbench-bert", CELLS, "vitbench-pit", "vitbench-autoformer")
FRONTS = (
    (CELLS, "samsung_a50"), (CELLS, "2080ti_1"), (CELLS, "pixel3"), ("nasbench-bert", "flops_m"), ("nasbench-nlp", "params_m")
)  # fmt: skip
DEVICES = ("samsung_a50", "2080ti_1")
STAGES: Mapping[str, Callable[[Run], Any]] = {
    **{f"hurdles {table}": partial(hurdles, table=table) for table in HURDLES},
    **{f"best-of-n {table}": partial(best_of_n, table=table) for table in BEST_OF_N},
    **{f"zero-reward {device}": partial(zero_reward, device=device) for device in DEVICES},
    **{f"linas {table} {cost}": partial(linas, table=table, cost=cost) for table, cost in FRONTS},
    **{f"strategies {table}": partial(strategies, table=table) for table in POOLS},
}
"""Quick ones first."""
STUDY = Study(
    "table_claims",
    __doc__,
    "half an hour on one core",
    STAGES,
    table_claims_report.report,
    (
        TABLES,
        WORKSPACE,
        Option("seeds", 30, "searches of every kind"),
        Option("repeats", 200, "draws behind a best-of-n curve"),
    ),
    anywhere=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
