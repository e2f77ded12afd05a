"""Searches where the true answer is known: a strategy asks a benchmark table, and its trace is compared with the exact front.

    hwbench validate --table nasbench201-cifar10 --device 1080ti_1 --strategy default --seeds 20 --out validation
    hwbench validate --table vitbench-autoformer --cost flops_m --strategy default --strategy random
    hwbench validate --table vitbench-autoformer --proxy dss-plus-plus --proxy snip      (proxy_ranks.py)

The first query of an architecture costs one evaluation, repeats are free, and architectures that are no networks cost
one and never score; a strategy that trains some only in part (its `fidelity`) pays that part, rounded up to what the table
has. A table that holds a sample of its space is searched as a pool: strategies choose among the known networks only. What
accuracy is weighed against is a device's latency or another cost (table_costs.py). Settings that are never
compared with each other: `paid` (accuracy and latency are both learnt by asking, as peers do), `known` (latency is free,
as with a compiled table) and `predicted` (latency is free but only predicted, from ten measurements of the device and what
the other devices of the table did: once the plain prediction, once its upper bound stands for it; the true one stays
hidden). Every run is stored as it ends: a killed validation goes on where it was, and any number of workers gives
the same results.

What is reported:
- hypervolume of accuracy and latency, as a share of what the exact front has; reference: the slowest and the worst
- evaluations until that share is 99 %
- regret: accuracy lost under a latency budget (10th, 25th, 50th percentile of the table's latencies)
- how often the network named the best breaks the true budget, where latency is predicted
- the strategy's own milliseconds (of processor time) per evaluation
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import Rows, folder_of, grid_size
from hwbench.core import jsonl, registry
from hwbench.core.command import command
from hwbench.core.errors import UsageError
from hwbench.core.executor.base import USUAL, make_executor
from hwbench.core.files import only_writer
from hwbench.core.progress import Tick, keep, no_tick, step
from hwbench.optimize import space_problem
from hwbench.optimize.pool import Pool
from hwbench.optimize.problem import MAX, MIN, Problem
from hwbench.optimize.strategy.base import Strategy, make_strategy
from hwbench.study import leaderboard, proxy_ranks, table_costs, trace
from hwbench.study.leaderboard import BUDGETS, MARKS, PLAIN, POOL_MARKS, UPPER, Run
from hwbench.study.predicted_latency import other_devices, predicted

SETTINGS = {"paid": ("paid",), "known": ("known",), "predicted": (PLAIN, UPPER)}
"""What may be asked for -> the ways it is run."""
BUDGETED = 500
"""Evaluations after which a search under a budget ends: what it is about is clear long before."""
LEAST_SHARE, LEAST_POOL = 0.1, 10
"""Tables that hold less of their space are a sample, a pool; so many networks are the fewest to choose among."""


# One search


def run_one(run: Run, tables: Path) -> dict[str, Any]:
    """One search on a table, and how good it was."""
    rows = table_costs.read(run.table, tables, [run.device])
    truth, mine = rows.cost_of(run.device), rows.usable(run.device)
    limit = None if run.budget is None else float(np.percentile(truth[mine], run.budget))
    expected = truth
    if run.setting in (PLAIN, UPPER):
        expected = predicted(run.table, run.device, run.seed, tables)[run.setting == UPPER]
    pool = pool_of(run.table, run.device, tables)
    strategy = _strategy(run, rows, expected, limit, pool)
    told = {_cost_name(rows, run.device): truth} if expected is truth else {}
    done = trace.run(strategy, trace.of_table(rows, mine, told), run.evaluations)
    # A network counts when it is trained to the end.
    accuracy = np.where(done.share < 1, np.nan, done.values["accuracy"])
    latency = rows.at(done.genes, truth)
    reached = run.evaluations if pool is None else min(run.evaluations, len(pool))
    marks = [mark for mark in (MARKS if pool is None else POOL_MARKS) if mark <= reached]
    cost = {
        "asked": len(accuracy),
        "spent": float(done.spent[-1]),
        "own_ms_per_evaluation": 1e3 * done.own_seconds / len(accuracy),
    }
    if limit is None:
        return cost | trace.hypervolumes(done, np.stack([latency, -accuracy], axis=1), rows, run.device, marks)
    under = trace.Budget(limit, accuracy, latency, rows.at(done.genes, expected))
    return cost | trace.regrets(done, under, rows, run.device, marks)


@lru_cache(maxsize=16)
def pool_of(table: str, cost: str, tables: Path) -> Pool | None:
    """The networks that searches choose among, where the table is a sample; None where it holds the space.

    Raises:
        UsageError: there are too few.
    """
    rows = table_costs.read(table, tables, [cost])
    mine = rows.usable(cost)
    if len(mine) >= LEAST_SHARE * grid_size(registry.get("benchmark", table).genes):
        return None
    if len(mine) < LEAST_POOL:
        raise UsageError(f"{table} holds {len(mine)} networks with {cost}; a search needs {LEAST_POOL} to choose among.")
    if not rows.space:
        return Pool(rows.genes[mine])
    return Pool(rows.genes[mine], space_problem.problem(registry.get("space", rows.space), {"accuracy": MAX}).canonical)


def _cost_name(rows: Rows, cost: str) -> str:
    """What strategies are told a cost is called."""
    return "latency_ms" if cost in rows.latency_ms else cost


def _strategy(run: Run, rows: Rows, expected: np.ndarray, limit: float | None, pool: Pool | None) -> Strategy:
    """The run's strategy on the front, or on accuracy under a limit; the cost is known to it unless it pays for it."""
    name = _cost_name(rows, run.device)
    problem = Problem(
        registry.get("benchmark", run.table).genes,
        {"accuracy": MAX, name: MIN} if limit is None else {"accuracy": MAX},
        {} if limit is None else {name: limit},
        {} if run.setting == "paid" else {name: lambda genes: rows.at(genes, expected)},
        pool=pool,
    )
    made: Strategy = registry.make("strategy", run.strategy, problem=problem, rng=np.random.default_rng(run.seed))
    return made


# All searches


@dataclass(frozen=True)
class Plan:
    """Everything that is asked of a validation."""

    table: str
    devices: Sequence[str]
    strategies: Sequence[str]
    seeds: int
    evaluations: int
    settings: Sequence[str]
    budgets: Sequence[int]

    def check(self) -> None:
        """Refuses what cannot be run on any table."""
        for setting in self.settings:
            if setting not in SETTINGS:
                raise UsageError(registry.unknown("setting", setting, SETTINGS))
        for budget in self.budgets:
            if not 0 < budget < 100:
                raise UsageError(f"A budget is a percentile of the latencies, between 0 and 100; got {budget}.")
        if not self.devices or not self.strategies or not self.settings:
            raise UsageError("Give at least one device (or another cost), one strategy and one setting.")

    def fitted(self, rows: Rows, tables: Path) -> Plan:
        """The plan for this table: no longer than its pool is large; refuses what cannot be run on it."""
        pools = {cost: pool_of(self.table, cost, tables) for cost in self.devices}
        sizes = [len(pool) for pool in pools.values() if pool is not None]
        if sizes and len(sizes) < len(pools):
            whole = next(cost for cost, pool in pools.items() if pool is None)
            raise UsageError(f"{self.table} holds a sample of its space with some of these, but all with {whole}: ask apart.")
        least = (POOL_MARKS if sizes else MARKS)[0]
        if self.evaluations < least:
            raise UsageError(
                f"evaluations must be at least {least}, where a search is first looked at, got {self.evaluations}."
            )
        for device in self.devices if "predicted" in self.settings else ():
            if device not in rows.latency_ms:
                raise UsageError(f"{device} is no device of {self.table}: setting 'predicted' is about its devices only.")
            other_devices(rows, device)
        for strategy in self.strategies:
            make_strategy(strategy, registry.get("benchmark", self.table).genes, {"accuracy": "max"})
        return replace(self, evaluations=min(self.evaluations, *sizes)) if sizes else self

    def about(self, rows: Rows, tables: Path) -> dict[str, Any]:
        """What is the same for all searches."""
        pool = pool_of(self.table, self.devices[0], tables)
        return {
            "table": registry.shown("benchmark", self.table),
            "data_sha256": rows.fingerprint(self.devices),
            "devices": list(self.devices),
            "costs": [name for name in self.devices if name not in rows.latency_ms],
            "accuracy_unit": rows.unit,
            "pool": None if pool is None else {cost: len(rows.usable(cost)) for cost in self.devices},
            "marks": list(MARKS if pool is None else POOL_MARKS),
            "seeds": self.seeds,
            "command": self.command(rows),
        }

    def runs(self) -> list[Run]:
        """Every search, in the order of the report."""
        return [
            Run(self.table, device, strategy, way, budget, seed, self._evaluations(budget))
            for strategy in self.strategies
            for seed in range(self.seeds)
            for device in self.devices
            for setting in self.settings
            for way in SETTINGS[setting]
            for budget in (None, *self.budgets)
            if budget or way != UPPER
        ]

    def _evaluations(self, budget: int | None) -> int:
        return self.evaluations if budget is None else min(self.evaluations, BUDGETED)

    def reported(self, results: leaderboard.Results) -> leaderboard.Results:
        """Own runs first, then those of earlier calls with the same table, devices and seeds."""
        runs = self.runs()
        mine = {run for run in results if run.table == self.table and run.device in self.devices and run.seed < self.seeds}
        return {run: results[run] for run in (*(r for r in runs if r in mine), *sorted(mine.difference(runs), key=repr))}

    def command(self, rows: Rows) -> str:
        """The command line that asks for it."""
        return command(
            "validate",
            table=registry.shown("benchmark", self.table),
            device=[name for name in self.devices if name in rows.latency_ms],
            cost=[name for name in self.devices if name not in rows.latency_ms],
            strategy=self.strategies,
            seeds=self.seeds,
            evaluations=self.evaluations,
            setting=self.settings,
            budget=[str(budget) for budget in self.budgets or [0]],
        )


@registry.takes(table="benchmark", strategy="strategy", proxy="proxy")
def validate(
    table: str,
    device: str | Sequence[str] = (),
    strategy: str | Sequence[str] = "default",
    seeds: int = 20,
    evaluations: int = 1000,
    tables: str | Path | None = None,
    out: str | Path = "validation",
    settings: Sequence[str] = ("paid", "known"),
    budgets: Sequence[int] = BUDGETS,
    workers: int = 1,
    executor: Executor | str | None = None,
    tick: Tick = no_tick,
    cost: str | Sequence[str] = (),
    proxy: str | Sequence[str] = (),
    workspace: str | Path = ".",
) -> dict[str, Any]:
    """Runs what the log in `out` lacks, and writes report.md, summary.json and a card per strategy beside it.

    Strategies of earlier calls with the same `out` stay in the report, as far as table, devices and seeds are the same.

    Args:
        table: Registered table.
        device: One of its devices, or several.
        strategy: Registered strategy, or several.
        seeds: 0 .. seeds - 1.
        evaluations: Architectures paid for per search.
        tables: Folder of tables; HWBENCH_TABLES if not given.
        out: Folder of the log and the report.
        settings: Of `paid`, `known`, `predicted`.
        budgets: Percentiles of the latencies under which regret is looked at; none leaves the fronts alone.
        workers: Processes; the results do not depend on it.
        executor: What to work with instead of processes here: `ray` or `ray://HOST:10001`, or anyone's own executor.
        tick: Progress.
        cost: Instead of a latency, or beside: `params_m`, `flops_m`, `latency_ms@DEVICE` by its predictor; one or several.
        proxy: Training-free scores to be held against the accuracies, one or several; then no searches are run.
        workspace: Where terms that proxies measure are kept.

    Raises:
        UsageError: an unknown table, device, strategy or setting, a missing package or folder, or too few evaluations.
    """
    if seeds < 1 or workers < 1:
        raise UsageError(f"seeds and workers must be at least 1, got {seeds} and {workers}.")
    devices, costs, strategies, proxies = map(_listed, (device, cost, strategy, proxy))
    if proxies:
        if devices or costs:
            raise UsageError("Proxies are held against accuracies alone, searches against a cost: ask for them apart.")
        return proxy_ranks.validate_proxies(table, proxies, folder_of(tables).resolve(), workspace, workers, tick, executor)
    plan = Plan(table, _listed([*devices, *costs]), strategies, seeds, evaluations, settings, budgets)
    plan.check()
    for kind, name in [("benchmark", table), *(("strategy", each) for each in strategies)]:
        if executor is None or isinstance(executor, str):
            registry.require_registered(kind, name)
    folder = folder_of(tables).resolve()
    with step(f"reading {table}"):
        rows = table_costs.read(table, folder, plan.devices)
        plan = plan.fitted(rows, folder)
    with only_writer(Path(out) / "runs"):
        results, failed = _results(plan.runs(), folder, Path(out), workers, executor, tick)
    with step("writing the report"):
        return leaderboard.publish(plan.reported(results), plan.about(rows, folder), failed, strategies, Path(out))


def _listed(given: str | Sequence[str]) -> list[str]:
    """One name or several, each once."""
    return [given] if isinstance(given, str) else list(dict.fromkeys(given))


def _results(
    runs: Sequence[Run], tables: Path, folder: Path, workers: int, executor: Executor | str | None, tick: Tick
) -> tuple[dict[Run, dict[str, Any]], list[dict[str, Any]]]:
    """(everything the log has, what failed): runs it lacks are done now and logged as they end."""
    log = folder / "runs.jsonl"
    results = read_log(log)
    missing = [run for run in runs if run not in results]
    failed = {}
    keep("searches of this and earlier calls", log, lambda: len(results))
    with jsonl.appending(log) as append:
        tick(len(runs) - len(missing), len(runs))
        for at, (run, result) in enumerate(_done(partial(attempt, tables=tables), missing, workers, executor), start=1):
            if "error" in result:
                failed[run] = {**asdict(run), **result}
            else:
                results[run] = result
                append({"run": asdict(run), "found": result})
            tick(len(runs) - len(missing) + at, len(runs))
    return results, [failed[run] for run in missing if run in failed]


def attempt(run: Run, tables: Path) -> dict[str, Any]:
    """What a run found; what went wrong under `error`, so that it costs this run only."""
    try:
        return run_one(run, tables)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _done(
    work: Callable[[Run], dict[str, Any]], runs: Sequence[Run], workers: int, executor: Executor | str | None
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Every run with its result, as they end."""
    # Alone in a process of one thread, even if it is the only one: sums do not depend on the machine's threads.
    mine = make_executor(executor or USUAL, min(workers, len(runs) or 1), 1) if isinstance(executor, str | None) else None
    pool: Any = mine or executor
    try:
        futures = {pool.submit(work, run): run for run in runs}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except Exception as error:  # whatever says of a lost worker there
                yield futures[future], {"error": f"{type(error).__name__}: {error}"}
    finally:
        if mine is not None:
            mine.shutdown(cancel_futures=True)


def read_log(path: Path) -> dict[Run, dict[str, Any]]:
    """Run -> what it found.

    Raises:
        DataError: a line is no run.
    """
    return dict(jsonl.read(path, "run of a validation", lambda entry: (Run(**entry["run"]), entry["found"])))
