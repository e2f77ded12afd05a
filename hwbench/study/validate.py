"""Searches where the true answer is known: a strategy asks a benchmark table, and its path is held against the exact front.

    hwbench validate --table nasbench201-cifar10 --device 1080ti_1 --strategy default --seeds 20 --out validation

The first query of an architecture costs one evaluation, repeats are free, and architectures that are no networks cost
one and never score; a strategy that trains some only in part (its `fidelity`) pays that part. Settings that are never
compared with each other: `paid` (accuracy and latency are both learnt by asking, as peers do), `known` (latency is free,
as with a compiled table) and `predicted` (latency is free but only predicted, from ten measurements of the device and what
the other devices of the table did: once the plain prediction, once its upper bound stands for it, and the true one is
never told). Every run is stored as it ends: a killed validation goes on where it was, and any number of workers gives
the same results.

What is reported:
- hypervolume of accuracy and latency, as a share of what the exact front has; reference: the slowest and the worst
- evaluations until that share is 99 %
- regret: accuracy points lost under a latency budget (10th, 25th, 50th percentile of the table's latencies)
- how often the network named the best breaks the true budget, where latency is predicted
- the strategy's own milliseconds (of processor time) per evaluation
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import Benchmark, Rows, folder_of, grid_size
from hwbench.core import jsonl, pareto, registry
from hwbench.core.conformal import Band
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.core.process_pool import Workers
from hwbench.optimize.problem import Values
from hwbench.optimize.strategy.base import Strategy, make_strategy
from hwbench.predictor.few_shot import transfer
from hwbench.predictor.few_shot.prior import Prior, learn, posterior, prior
from hwbench.predictor.tabular.positions import Position
from hwbench.study import leaderboard
from hwbench.study.leaderboard import BUDGETS, GOAL, MARKS, PLAIN, UPPER, Run

BATCH = 10
SETTINGS = {"paid": ("paid",), "known": ("known",), "predicted": (PLAIN, UPPER)}
"""What may be asked for -> the ways it is run."""
BUDGETED = 500
"""Evaluations after which a search under a budget ends: what it is about is found long before."""
MEASURED = 10
"""Measurements of the device a prediction rests on."""
COPY = 0.999
"""Devices whose latencies correlate above this are one device under two names."""
LEAST_SHARE = 0.01
"""Tables that hold less of their space cannot answer a search."""


# One search


@dataclass(frozen=True)
class Played:
    """What a search asked, in order."""

    genes: Genes
    values: Mapping[str, np.ndarray]
    """What was told of them."""
    share: np.ndarray
    """How far each was trained."""
    spent: np.ndarray
    """Evaluations paid after each."""
    own_seconds: float
    """The strategy's own processor time."""

    def upto(self, evaluations: float) -> int:
        """How many were asked when so many evaluations were spent."""
        return int(np.searchsorted(self.spent, evaluations + 1e-9, side="right"))


def play(
    strategy: Strategy,
    query: Callable[[Genes, np.ndarray], tuple[Values, np.ndarray]],
    evaluations: int,
    batch: int = BATCH,
) -> Played:
    """Lets a strategy ask until the evaluations are spent or it asks nothing more.

    Args:
        strategy: Asks and is told.
        query: (architectures, share of a training wanted of each) -> (values, share done).
        evaluations: Architectures paid for; one trained in part costs that part.
        batch: Asked at a time.
    """
    asked: list[Genes] = []
    told: list[Values] = []
    shares: list[np.ndarray] = []
    spent = [0.0]
    trained: dict[bytes, float] = {}
    own = 0.0
    while (left := math.ceil(evaluations - spent[-1] - 1e-9)) > 0:
        started = time.process_time()
        genes = strategy.ask(min(batch, left))
        own += time.process_time() - started
        if not len(genes):
            break
        wanted: np.ndarray | None = getattr(strategy, "fidelity", None)
        values, done = query(genes, np.ones(len(genes)) if wanted is None else wanted)
        started = time.process_time()
        strategy.tell(genes, values if wanted is None else {**values, "fidelity": done})
        own += time.process_time() - started
        before = spent[-1]
        for key, share in zip(keys(genes), done.tolist(), strict=True):
            spent.append(spent[-1] + max(share - trained.get(key, 0.0), 0.0))
            trained[key] = max(share, trained.get(key, 0.0))
        asked.append(genes)
        told.append(values)
        shares.append(done)
        if spent[-1] == before:
            break  # repeats are free, but who asks for nothing else would never end
    if not asked:
        raise UsageError("The strategy asked for nothing.")
    together = {name: np.concatenate([values[name] for values in told]) for name in told[0]}
    return Played(np.concatenate(asked), together, np.concatenate(shares), np.array(spent[1:]), own)


def run_one(run: Run, tables: Path) -> dict[str, Any]:
    """One search on a table, and how good it was."""
    table: Benchmark = registry.get("benchmark", run.table)
    rows = table.read(tables)
    truth, mine = rows.latency_of(run.device), rows.usable(run.device)
    limit = None if run.budget is None else float(np.percentile(truth[mine], run.budget))
    believed = truth
    if run.setting in (PLAIN, UPPER):
        plain, upper = _predicted(run.table, run.device, run.seed, tables)
        believed = upper if run.setting == UPPER else plain

    def query(genes: Genes, wanted: np.ndarray) -> tuple[Values, np.ndarray]:
        values, done = rows.query(genes, run.device), np.ones(len(genes))
        for share, accuracy in rows.partial.items():
            some = (wanted >= share) & (wanted < 1)
            done[some] = share
            values["accuracy"][some] = rows.at(genes[some], accuracy)
        values["accuracy"][np.isnan(values["latency_ms"])] = np.nan
        return values if believed is truth else {"accuracy": values["accuracy"]}, done

    strategy = make_strategy(
        run.strategy,
        table.genes,
        {"accuracy": "max", "latency_ms": "min"} if limit is None else {"accuracy": "max"},
        {} if limit is None else {"latency_ms": limit},
        {} if run.setting == "paid" else {"latency_ms": lambda genes: rows.at(genes, believed)},
        run.seed,
    )
    played = play(strategy, query, run.evaluations)
    # A network counts when it is trained to the end.
    accuracy = np.where(played.share < 1, np.nan, played.values["accuracy"])
    latency = rows.at(played.genes, truth)
    marks = [mark for mark in MARKS if mark <= run.evaluations]
    found: dict[str, Any] = {
        "asked": len(accuracy),
        "spent": float(played.spent[-1]),
        "own_ms_per_evaluation": 1e3 * played.own_seconds / len(accuracy),
    }
    if limit is None:
        return found | _growth(played, np.stack([latency, -accuracy], axis=1), rows, run.device, marks)
    return found | _regret(played, accuracy, latency, rows.at(played.genes, believed), limit, rows, run.device, marks)


def _growth(played: Played, path: np.ndarray, rows: Rows, device: str, marks: Sequence[int]) -> dict[str, Any]:
    """Share of the exact hypervolume at the marks; evaluations until it is GOAL."""
    mine = rows.usable(device)
    exact = np.stack([rows.latency_of(device)[mine], -rows.accuracy[mine]], axis=1)
    reference = exact.max(axis=0)
    share = pareto.hypervolume_trace(path, reference) / pareto.hypervolume(exact, reference)
    there = np.flatnonzero(share >= GOAL)
    return {
        "hypervolume": [float(share[n - 1]) if (n := played.upto(mark)) else 0.0 for mark in marks],
        "evaluations_to_goal": math.ceil(played.spent[there[0]] - 1e-9) if len(there) else None,
    }


def _regret(
    played: Played,
    accuracy: np.ndarray,
    latency: np.ndarray,
    believed: np.ndarray,
    limit: float,
    rows: Rows,
    device: str,
    marks: Sequence[int],
) -> dict[str, Any]:
    """At the marks, what the network named the best lacks of the true best, and by how much it breaks the budget.

    A network that breaks the budget has no regret (null): it is no answer.
    """
    mine = rows.usable(device)
    best = float(rows.accuracy[mine][rows.latency_of(device)[mine] <= limit].max())
    hope = np.where((believed <= limit) & ~np.isnan(accuracy), accuracy, -np.inf)
    regret: list[float | None] = []
    excess: list[float] = []
    for mark in marks:
        n = played.upto(mark)
        named = int(np.argmax(hope[:n])) if n else 0
        nothing = n == 0 or hope[named] == -np.inf
        excess.append(0.0 if nothing else max(float(latency[named]) / limit - 1.0, 0.0))
        # Before anything within the budget is found, the worst network stands for it.
        reached = float(rows.accuracy[mine].min()) if nothing else float(accuracy[named])
        regret.append(None if excess[-1] else best - reached)
    return {"regret": regret, "excess": excess}


# Latencies that are only predicted


@lru_cache(maxsize=64)
def _taught(table: str, device: str, tables: Path) -> tuple[Prior, Band]:
    """What the other devices of a table teach about one, and the band of such predictions."""
    found: Benchmark = registry.get("benchmark", table)
    rows = found.read(tables)
    others = _others(rows, device)
    latencies = np.stack([rows.latency_ms[name] for name in others], axis=1)
    logs = np.log(np.where(latencies > 0, latencies, np.nan))
    choices = [Position(name, None, tuple(range(n)), rows.genes[:, g]) for g, (name, n) in enumerate(found.genes)]
    population = learn(logs, transfer.columns_of(choices, np.arange(len(rows))))
    measured = np.random.default_rng(0).choice(rows.usable(device), MEASURED, replace=False)
    return prior(population), transfer.rehearse(population, logs, measured).band


@lru_cache(maxsize=64)
def _predicted(table: str, device: str, seed: int, tables: Path) -> tuple[np.ndarray, np.ndarray]:
    """(prediction, upper bound) of every row, from measurements drawn by the seed."""
    rows = registry.get("benchmark", table).read(tables)
    before, band = _taught(table, device, tables)
    # Not the strategy's own stream of numbers.
    measured = np.random.default_rng((seed, MEASURED)).choice(rows.usable(device), MEASURED, replace=False)
    new_device = posterior(before, measured, np.log(rows.latency_of(device)[measured]))
    prediction = np.exp(new_device.mean())
    return prediction, band.bounds(prediction, new_device.deviation())[1]


def _others(rows: Rows, device: str) -> list[str]:
    """Devices that can teach about one: not itself under another name. Where enough measured everything, only those: quicker.

    Raises:
        UsageError: they are too few.
    """
    others = [name for name in rows.latency_ms if not _same(rows, device, name)]
    if len(others) < transfer.LEAST_DEVICES or len(rows.usable(device)) < MEASURED:
        raise UsageError(
            f"Predicting {device} needs {transfer.LEAST_DEVICES} other devices in the table (it has {len(others)}) "
            f"and {MEASURED} measurements ({len(rows.usable(device))})."
        )
    whole = [name for name in others if not np.isnan(rows.latency_ms[name]).any()]
    return whole if len(whole) >= transfer.LEAST_DEVICES else others


def _same(rows: Rows, device: str, other: str) -> bool:
    """Whether a device is the other one: by name, at another batch size (`_32`), or copied from it."""
    stem = re.compile(r"_\d+$")
    if stem.sub("", device) == stem.sub("", other):
        return True
    both = np.log(np.stack([rows.latency_ms[device], rows.latency_ms[other]])[:, ~np.isnan(rows.accuracy)])
    both = both[:, np.isfinite(both).all(axis=0)]
    return both.shape[1] > 2 and bool(np.corrcoef(both)[0, 1] > COPY)


# All searches


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
    tick: Callable[[int, int], None] = lambda done, total: None,
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
    if evaluations < MARKS[0]:
        raise UsageError(f"evaluations must be at least {MARKS[0]}, where a search is first looked at, got {evaluations}.")
    for setting in settings:
        if setting not in SETTINGS:
            raise UsageError(registry.unknown("setting", setting, SETTINGS))
    for budget in budgets:
        if not 0 < budget < 100:
            raise UsageError(f"A budget is a percentile of the latencies, between 0 and 100; got {budget}.")
    devices = [device] if isinstance(device, str) else list(dict.fromkeys(device))
    strategies = [strategy] if isinstance(strategy, str) else list(dict.fromkeys(strategy))
    if not devices or not strategies or not settings:
        raise UsageError("Give at least one device, one strategy and one setting.")
    folder, plan = folder_of(tables).resolve(), registry.get("benchmark", table)
    rows = plan.read(folder)
    for name in devices:
        share = len(rows.usable(name)) / grid_size(plan.genes)
        if share < LEAST_SHARE:
            raise UsageError(
                f"{table} holds {share:.1g} of its architectures on {name}: a search would find nothing but holes; "
                "choose a table that holds all of them."
            )
        if "predicted" in settings:
            _others(rows, name)
    for name in strategies:
        make_strategy(name, plan.genes, {"accuracy": "max"})
    runs = [
        Run(table, d, s, way, budget, seed, evaluations if budget is None else min(evaluations, BUDGETED))
        for s in strategies
        for seed in range(seeds)
        for d in devices
        for setting in settings
        for way in SETTINGS[setting]
        for budget in (None, *budgets)
        if budget or way != UPPER
    ]
    results, failed = _results(runs, folder, Path(out), workers, executor, tick)
    mine = {run for run in results if run.table == table and run.device in devices and run.seed < seeds}
    wanted = {run: results[run] for run in (*(r for r in runs if r in mine), *sorted(mine.difference(runs), key=repr))}
    options = {"--table": [table], "--device": devices, "--strategy": strategies, "--seeds": [str(seeds)]}
    options |= {"--evaluations": [str(evaluations)], "--setting": list(settings), "--budget": [str(b) for b in budgets or [0]]}
    words = [word for name, given in options.items() for each in given for word in (name, each)]
    about = {
        "table": table,
        "data_sha256": rows.fingerprint(devices),
        "devices": devices,
        "seeds": seeds,
        "command": shlex.join(["hwbench", "validate", *words]),
    }
    return leaderboard.publish(wanted, about, failed, strategies, Path(out))


def _results(
    runs: Sequence[Run], tables: Path, folder: Path, workers: int, executor: Executor | None, tick: Callable[[int, int], None]
) -> tuple[dict[Run, dict[str, Any]], list[dict[str, Any]]]:
    """(everything the log has, what failed): runs it lacks are done now and logged as they end."""
    log = folder / "runs.jsonl"
    found = read_log(log)
    missing = [run for run in runs if run not in found]
    failed = {}
    with jsonl.appending(log) as append:
        for at, (run, result) in enumerate(_done(partial(attempt, tables=tables), missing, workers, executor), start=1):
            if "error" in result:
                failed[run] = {**asdict(run), **result}
            else:
                found[run] = result
                append({"run": asdict(run), "found": result})
            tick(len(runs) - len(missing) + at, len(runs))
    return found, [failed[run] for run in missing if run in failed]


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
