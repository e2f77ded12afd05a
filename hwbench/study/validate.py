"""Searches where the true answer is known: a strategy asks a benchmark table, and its trace is compared with the exact front.

    hwbench validate --table nasbench201-cifar10 --device 1080ti_1 --strategy default --seeds 20 --out validation

The first query of an architecture costs one evaluation, repeats are free, and architectures that are no networks cost
one and never score; a strategy that trains some only in part (its `fidelity`) pays that part. Settings that are never
compared with each other: `paid` (accuracy and latency are both learnt by asking, as peers do), `known` (latency is free,
as with a compiled table) and `predicted` (latency is free but only predicted, from ten measurements of the device and what
the other devices of the table did: once the plain prediction, once its upper bound stands for it; the true one stays
hidden). Every run is stored as it ends: a killed validation goes on where it was, and any number of workers gives
the same results.

What is reported:
- hypervolume of accuracy and latency, as a share of what the exact front has; reference: the slowest and the worst
- evaluations until that share is 99 %
- regret: accuracy points lost under a latency budget (10th, 25th, 50th percentile of the table's latencies)
- how often the network named the best breaks the true budget, where latency is predicted
- the strategy's own milliseconds (of processor time) per evaluation
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import Benchmark, Rows, folder_of, grid_size
from hwbench.core import jsonl, registry
from hwbench.core.command import command
from hwbench.core.errors import UsageError
from hwbench.core.files import only_writer
from hwbench.core.genes import Genes
from hwbench.core.process_pool import Workers
from hwbench.core.progress import Tick, keep, no_tick, step
from hwbench.optimize.problem import Values
from hwbench.optimize.strategy.base import Strategy, make_strategy
from hwbench.study import leaderboard, trace
from hwbench.study.leaderboard import BUDGETS, MARKS, PLAIN, UPPER, Run
from hwbench.study.predicted_latency import other_devices, predicted

SETTINGS = {"paid": ("paid",), "known": ("known",), "predicted": (PLAIN, UPPER)}
"""What may be asked for -> the ways it is run."""
BUDGETED = 500
"""Evaluations after which a search under a budget ends: what it is about is clear long before."""
LEAST_SHARE = 0.01
"""Tables that hold less of their space cannot answer a search."""


# One search


def run_one(run: Run, tables: Path) -> dict[str, Any]:
    """One search on a table, and how good it was."""
    table: Benchmark = registry.get("benchmark", run.table)
    rows = table.read(tables)
    truth, mine = rows.latency_of(run.device), rows.usable(run.device)
    limit = None if run.budget is None else float(np.percentile(truth[mine], run.budget))
    expected = truth
    if run.setting in (PLAIN, UPPER):
        expected = predicted(run.table, run.device, run.seed, tables)[run.setting == UPPER]
    strategy = _strategy(run, table, rows, expected, limit)
    done = trace.run(strategy, _query(run, rows, told_latency=expected is truth), run.evaluations)
    # A network counts when it is trained to the end.
    accuracy = np.where(done.share < 1, np.nan, done.values["accuracy"])
    latency = rows.at(done.genes, truth)
    marks = [mark for mark in MARKS if mark <= run.evaluations]
    cost = {
        "asked": len(accuracy),
        "spent": float(done.spent[-1]),
        "own_ms_per_evaluation": 1e3 * done.own_seconds / len(accuracy),
    }
    if limit is None:
        return cost | trace.hypervolumes(done, np.stack([latency, -accuracy], axis=1), rows, run.device, marks)
    under = trace.Budget(limit, accuracy, latency, rows.at(done.genes, expected))
    return cost | trace.regrets(done, under, rows, run.device, marks)


def _strategy(run: Run, table: Benchmark, rows: Rows, expected: np.ndarray, limit: float | None) -> Strategy:
    """The run's strategy on the front, or on accuracy under a limit; latency is known to it unless it pays for it."""
    return make_strategy(
        run.strategy,
        table.genes,
        {"accuracy": "max", "latency_ms": "min"} if limit is None else {"accuracy": "max"},
        {} if limit is None else {"latency_ms": limit},
        {} if run.setting == "paid" else {"latency_ms": lambda genes: rows.at(genes, expected)},
        run.seed,
    )


def _query(run: Run, rows: Rows, told_latency: bool) -> trace.Query:
    """What the table answers, with the accuracy of a training as brief as wanted."""

    def query(genes: Genes, wanted: np.ndarray) -> tuple[Values, np.ndarray]:
        values, done = rows.query(genes, run.device), np.ones(len(genes))
        for share, accuracy in rows.partial.items():
            some = (wanted >= share) & (wanted < 1)
            done[some] = share
            values["accuracy"][some] = rows.at(genes[some], accuracy)
        values["accuracy"][np.isnan(values["latency_ms"])] = np.nan
        return values if told_latency else {"accuracy": values["accuracy"]}, done

    return query


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
        if self.evaluations < MARKS[0]:
            least = f"at least {MARKS[0]}, where a search is first looked at"
            raise UsageError(f"evaluations must be {least}, got {self.evaluations}.")
        for setting in self.settings:
            if setting not in SETTINGS:
                raise UsageError(registry.unknown("setting", setting, SETTINGS))
        for budget in self.budgets:
            if not 0 < budget < 100:
                raise UsageError(f"A budget is a percentile of the latencies, between 0 and 100; got {budget}.")
        if not self.devices or not self.strategies or not self.settings:
            raise UsageError("Give at least one device, one strategy and one setting.")

    def check_table(self, rows: Rows) -> None:
        """Refuses what cannot be run on this one."""
        genes = registry.get("benchmark", self.table).genes
        for device in self.devices:
            share = len(rows.usable(device)) / grid_size(genes)
            if share < LEAST_SHARE:
                raise UsageError(
                    f"{self.table} holds {share:.1g} of its architectures on {device}: a search would find nothing but holes; "
                    "choose a table that holds all of them."
                )
            if "predicted" in self.settings:
                other_devices(rows, device)
        for strategy in self.strategies:
            make_strategy(strategy, genes, {"accuracy": "max"})

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

    @property
    def command(self) -> str:
        """The command line that asks for it."""
        return command(
            "validate",
            table=self.table,
            device=self.devices,
            strategy=self.strategies,
            seeds=self.seeds,
            evaluations=self.evaluations,
            setting=self.settings,
            budget=[str(budget) for budget in self.budgets or [0]],
        )


@registry.takes(table="benchmark", strategy="strategy")
def validate(
    table: str,
    device: str | Sequence[str],
    strategy: str | Sequence[str] = "default",
    seeds: int = 20,
    evaluations: int = 1000,
    tables: str | Path | None = None,
    out: str | Path = "validation",
    settings: Sequence[str] = ("paid", "known"),
    budgets: Sequence[int] = BUDGETS,
    workers: int = 1,
    executor: Executor | None = None,
    tick: Tick = no_tick,
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
        executor: Anyone's own executor, instead of processes here.
        tick: Progress.

    Raises:
        UsageError: an unknown table, device, strategy or setting, a missing package or folder, or too few evaluations.
    """
    if seeds < 1 or workers < 1:
        raise UsageError(f"seeds and workers must be at least 1, got {seeds} and {workers}.")
    devices, strategies = ([given] if isinstance(given, str) else list(dict.fromkeys(given)) for given in (device, strategy))
    plan = Plan(table, devices, strategies, seeds, evaluations, settings, budgets)
    plan.check()
    for kind, name in [("benchmark", table), *(("strategy", each) for each in strategies)]:
        if executor is None:
            registry.require_registered(kind, name)
    folder = folder_of(tables).resolve()
    with step(f"reading {table}"):
        rows = registry.get("benchmark", table).read(folder)
    plan.check_table(rows)
    with only_writer(Path(out) / "runs"):
        results, failed = _results(plan.runs(), folder, Path(out), workers, executor, tick)
    about = {
        "table": table,
        "data_sha256": rows.fingerprint(devices),
        "devices": devices,
        "seeds": seeds,
        "command": plan.command,
    }
    with step("writing the report"):
        return leaderboard.publish(plan.reported(results), about, failed, strategies, Path(out))


def _results(
    runs: Sequence[Run], tables: Path, folder: Path, workers: int, executor: Executor | None, tick: Tick
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
    work: Callable[[Run], dict[str, Any]], runs: Sequence[Run], workers: int, executor: Executor | None
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Every run with its result, as they end."""
    # Alone in a process of one thread, even if it is the only one: sums do not depend on the machine's threads.
    pool = executor or Workers(min(workers, len(runs) or 1), threads=1)
    try:
        futures = {pool.submit(work, run): run for run in runs}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except Exception as error:  # whatever says of a lost worker there
                yield futures[future], {"error": f"{type(error).__name__}: {error}"}
    finally:
        if executor is None:
            pool.shutdown(cancel_futures=True)


def read_log(path: Path) -> dict[Run, dict[str, Any]]:
    """Run -> what it found.

    Raises:
        DataError: a line is no run.
    """
    return dict(jsonl.read(path, "run of a validation", lambda entry: (Run(**entry["run"]), entry["found"])))
