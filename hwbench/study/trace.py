"""The trace of a search on a benchmark table: what a strategy asked for and paid, and how good it was after how many.

The first evaluation of an architecture costs one, repeats are free, and one that is trained only in part (a strategy's
`fidelity`) costs that part. Hypervolume is a share of what the exact front has; regret is in accuracy points.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import Rows
from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.optimize.problem import Values
from hwbench.optimize.strategy.base import Strategy
from hwbench.study.leaderboard import GOAL

BATCH = 10
Query = Callable[[Genes, np.ndarray], tuple[Values, np.ndarray]]
"""(architectures, share of a training wanted of each) -> (values, share done)."""


@dataclass(frozen=True)
class Trace:
    """Every evaluation of a search, in order."""

    genes: Genes
    values: Mapping[str, np.ndarray]
    """What the strategy was told of them."""
    share: np.ndarray
    """How far each was trained."""
    spent: np.ndarray
    """Evaluations paid after each."""
    own_seconds: float
    """The strategy's own processor time."""

    def upto(self, evaluations: float) -> int:
        """How many were asked for when so many evaluations were spent."""
        return int(np.searchsorted(self.spent, evaluations + 1e-9, side="right"))


def of_table(rows: Rows, networks: np.ndarray, told: Mapping[str, np.ndarray]) -> Query:
    """What a table answers: the accuracy after a training as brief as wanted, or the next longer one it has, and costs.

    Args:
        rows: The table.
        networks: Indices of the rows that count; other architectures are invalid, and cost as much.
        told: Name of a cost -> its column.
    """
    counts = np.zeros(len(rows), bool)
    counts[networks] = True
    final = np.where(counts, rows.accuracy, np.nan)

    def query(genes: Genes, wanted: np.ndarray) -> tuple[Values, np.ndarray]:
        accuracy, done = rows.at(genes, final), np.ones(len(genes))
        valid = ~np.isnan(accuracy)
        for share in sorted(rows.partial, reverse=True):
            some = wanted <= share + 1e-9
            done[some] = share
            accuracy[some] = rows.at(genes[some], rows.partial[share])
        values = {"accuracy": accuracy, **{name: rows.at(genes, column) for name, column in told.items()}}
        return {name: np.where(valid, column, np.nan) for name, column in values.items()}, done

    return query


def run(strategy: Strategy, query: Query, evaluations: int, batch: int = BATCH) -> Trace:
    """Lets a strategy ask until the evaluations are spent or it asks for nothing more.

    Args:
        strategy: Asks and is told.
        query: Answers.
        evaluations: Architectures paid for; one trained in part costs that part.
        batch: Asked for at a time.

    Raises:
        UsageError: it never asked for anything.
    """
    record, own = _Record(), 0.0
    while (left := math.ceil(evaluations - record.spent[-1] - 1e-9)) > 0:
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
        if not record.add(genes, values, done):
            break  # repeats are free, but who asks for nothing else would never end
    return record.trace(own)


class _Record:
    """Batches of a search as they come, and what they cost."""

    def __init__(self) -> None:
        self._batches: list[tuple[Genes, Values, np.ndarray]] = []
        self._trained: dict[bytes, float] = {}
        self.spent = [0.0]

    def add(self, genes: Genes, values: Values, done: np.ndarray) -> bool:
        """Takes a batch in; whether anything of it had to be paid."""
        before = self.spent[-1]
        for key, share in zip(keys(genes), done.tolist(), strict=True):
            self.spent.append(self.spent[-1] + max(share - self._trained.get(key, 0.0), 0.0))
            self._trained[key] = max(share, self._trained.get(key, 0.0))
        self._batches.append((genes, values, done))
        return self.spent[-1] > before

    def trace(self, own_seconds: float) -> Trace:
        """Everything so far."""
        if not self._batches:
            raise UsageError("The strategy asked for nothing.")
        genes, told, shares = zip(*self._batches, strict=True)
        values = {name: np.concatenate([each[name] for each in told]) for name in told[0]}
        return Trace(np.concatenate(genes), values, np.concatenate(shares), np.array(self.spent[1:]), own_seconds)


def hypervolumes(trace: Trace, losses: np.ndarray, rows: Rows, device: str, marks: Sequence[int]) -> dict[str, Any]:
    """Share of the exact hypervolume at the marks; evaluations until it is GOAL.

    Args:
        trace: Of the search.
        losses: [evaluations, 2]: true latency, and accuracy with its sign changed.
        rows: The table.
        device: Of the latencies.
        marks: Evaluations after which the search is looked at.
    """
    mine = rows.usable(device)
    exact = np.stack([rows.cost_of(device)[mine], -rows.accuracy[mine]], axis=1)
    reference = exact.max(axis=0)
    share = pareto.hypervolume_trace(losses, reference) / pareto.hypervolume(exact, reference)
    there = np.flatnonzero(share >= GOAL)
    return {
        "hypervolume": [float(share[n - 1]) if (n := trace.upto(mark)) else 0.0 for mark in marks],
        "evaluations_to_goal": math.ceil(trace.spent[there[0]] - 1e-9) if len(there) else None,
    }


@dataclass(frozen=True)
class Budget:
    """A search under a limit of latency, evaluation by evaluation."""

    limit: float
    accuracy: np.ndarray
    """NaN where a network was not trained to the end."""
    latency: np.ndarray
    expected: np.ndarray
    """The latency that the search was told, which may be a prediction."""


def regrets(trace: Trace, under: Budget, rows: Rows, device: str, marks: Sequence[int]) -> dict[str, Any]:
    """At the marks, what the network named the best lacks of the true best, and by how much it breaks the budget.

    A network that breaks the budget has no regret (null): it is no answer.
    """
    mine = rows.usable(device)
    best = float(rows.accuracy[mine][rows.cost_of(device)[mine] <= under.limit].max())
    kept = (under.expected <= under.limit) & ~np.isnan(under.accuracy)
    score = np.where(kept, under.accuracy, -np.inf)
    regret: list[float | None] = []
    excess: list[float] = []
    for mark in marks:
        n = trace.upto(mark)
        named = int(np.argmax(score[:n])) if n else 0
        nothing = n == 0 or score[named] == -np.inf
        excess.append(0.0 if nothing else max(float(under.latency[named]) / under.limit - 1.0, 0.0))
        # Before anything within the budget is known, the worst network stands for it.
        reached = float(rows.accuracy[mine].min()) if nothing else float(under.accuracy[named])
        regret.append(None if excess[-1] else best - reached)
    return {"regret": regret, "excess": excess}
