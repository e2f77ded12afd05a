"""The ask-score-tell loop: every batch is logged as it is scored, and a log is replayed before anything is scored again.

Where a score is dear and limits are hard, what breaks a limit is not scored: its costs are known, the strategy is told how far
it breaks them, and it is no evaluation. Such architectures stand in the log, marked, and are no trials.

A log of an earlier version says nothing of that. Where strategies ask otherwise by now, what it holds is told as it is, and the
search goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.block_shares import BlockShares
from hwbench.accuracy.scoring import Scores, Scoring, nobody
from hwbench.core import jsonl
from hwbench.core.errors import DataError
from hwbench.core.files import without_nan
from hwbench.core.genes import Genes
from hwbench.core.progress import Tick, keep
from hwbench.optimize.errors import TooManyFailures
from hwbench.optimize.limit import Limit
from hwbench.optimize.objective.base import ACCURACY, Objective
from hwbench.optimize.problem import Problem, violation
from hwbench.optimize.space_problem import as_population
from hwbench.optimize.strategy.base import Strategy
from hwbench.space import activity
from hwbench.space.base import Population, Space

FAILED = "failed"
"""In the log, where some of a batch have no accuracy: index -> why."""
SHARES = "blocks"
"""In the log, where the strategy evolves blocks: block -> its shares in the accuracies of a batch."""
UNSCORED = "unscored"
"""In the log, of every batch of a search that spares (`spares`): indices of those that break a limit and were not scored."""
MOST_UNSCORED = 20_000
"""So many in a row end a search: its strategy does not find its way within the limits."""
SAME = 1e-6
"""Relative: how far what is logged of an architecture may differ between machines."""
BATCH, DEAR_BATCH = 100, 20
"""Architectures scored at a time; fewer where each is dear, so that less is lost with a kill and strategies learn sooner."""


@dataclass(frozen=True)
class Plan:
    """What a search consists of."""

    space: Space
    problem: Problem
    strategy: Strategy
    objective: Objective
    limits: Sequence[Limit]
    """The budget first, where there is one."""
    evaluations: int
    blocks: BlockShares | None = None
    """What blocks have of an accuracy, where the strategy asks for that."""

    @property
    def budgets(self) -> dict[str, float]:
        """Cost -> the most it may be."""
        return {limit.name: limit.at_most for limit in self.limits}

    @property
    def columns(self) -> tuple[str, ...]:
        """Every value of an architecture that is kept."""
        return (ACCURACY, *(name for limit in self.limits for name in limit.columns))

    def together(self, dear: bool) -> int:
        """Architectures scored at a time: a generation, where the strategy says how large that is."""
        return int(getattr(self.strategy, "generation", DEAR_BATCH if dear else BATCH))

    def compared(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Accuracy, and of each cost what is compared with its limit."""
        return {ACCURACY: values[ACCURACY], **{limit.name: values[limit.compared_name] for limit in self.limits}}

    def broken(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """How far costs break their limits."""
        return violation({limit.name: values[limit.compared_name] for limit in self.limits}, self.budgets)


@dataclass(frozen=True)
class Trials:
    """Every trial of a search, as arrays, in order of evaluation."""

    population: Population
    values: Mapping[str, np.ndarray]
    """Accuracy and costs, as they are."""
    told: Mapping[str, np.ndarray]
    """What the strategy was told of them."""
    violation: np.ndarray
    """How far the limits are broken, whatever the objective makes of that."""
    failed: Mapping[int, str] = field(default_factory=dict)
    """Trial without an accuracy -> why; none where it is no network."""
    unscored: int = 0
    """Architectures that were asked for, break a limit, and were not scored: they are no trials."""

    def __len__(self) -> int:
        return len(self.violation)

    @property
    def scored(self) -> np.ndarray:
        """Where there is an accuracy."""
        return np.asarray(np.isfinite(self.values[ACCURACY]))

    @property
    def feasible(self) -> np.ndarray:
        """Where there is one, and all limits are kept."""
        return self.scored & (self.violation <= 0)

    @property
    def fitness(self) -> np.ndarray:
        """The objective's number; of several objectives the first."""
        return next(iter(self.told.values()))

    def facts(self, i: int) -> dict[str, Any]:
        """What there is to say of one."""
        values = {name: float(column[i]) for name, column in self.values.items()}
        return {**values, "fitness": float(self.fitness[i]), "within_budget": bool(self.feasible[i])}


@dataclass(frozen=True)
class Batch:
    """Architectures that were asked for together."""

    genes: Genes
    values: Mapping[str, np.ndarray]
    """Accuracy and costs, as they are."""
    failed: Mapping[int, str]
    """Index of one without an accuracy -> why."""
    unscored: Sequence[int] | None = None
    """Indices of those that were not scored, as they break a limit; None where all are."""
    shares: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What their blocks have of the accuracies, where the strategy asks for that."""
    old: bool = False
    """Whether an earlier version logged it, whose strategy may have asked otherwise."""

    @property
    def evaluated(self) -> np.ndarray:
        """Indices of the others."""
        return np.setdiff1d(np.arange(len(self.genes)), self.unscored or ())

    def entry(self) -> dict[str, Any]:
        """As the log keeps it."""
        failed = {FAILED: dict(self.failed)} if self.failed else {}
        shares = {SHARES: _listed(self.shares)} if self.shares else {}
        unscored = {} if self.unscored is None else {UNSCORED: list(self.unscored)}
        return {"genes": self.genes.tobytes().hex(), **_listed(self.values), **unscored, **shares, **failed}


def run_trials(plan: Plan, score: Scoring, log: Path, tick: Tick) -> Trials:
    """Asks, scores, logs and tells until the evaluations are spent or the strategy finds nothing new.

    Raises:
        TooManyFailures: the accuracy could not be told of any architecture, for too long.
    """
    past = iter(_read_log(log, plan, spares(plan, score)))
    size = plan.together(score.expensive)
    batches: list[Batch] = []
    done = failures = idle = 0
    asks_otherwise = False
    keep(f"of {plan.evaluations} evaluations", log.parent, lambda: done)
    with jsonl.appending(log) as append:
        while done < plan.evaluations and idle < MOST_UNSCORED:
            logged = next(past, None)
            if logged is None or not (logged.old and asks_otherwise):
                asked = plan.strategy.ask(min(size, plan.evaluations - done))
                asks_otherwise = logged is not None and not np.array_equal(logged.genes, asked)
            if logged is None and not len(asked):
                break
            if logged is not None and asks_otherwise and not logged.old:
                raise DataError(f"{log}: batch {len(batches)} is not of this search; choose another --out.")
            if logged is not None:
                _check_told(plan, score, logged, f"{log}: batch {len(batches)}")
            batch = logged or _batch(plan, score, asked, _within(tick, done, plan.evaluations))
            failures = _in_a_row(failures, batch.values[ACCURACY], batch.failed)
            if logged is None:
                if batch.failed and score.gives_up(failures, as_population(asked)):
                    # not logged: its architectures may be innocent
                    raise TooManyFailures(failures, batch.failed[max(batch.failed)])
                append(batch.entry())
            plan.strategy.tell(batch.genes, {**plan.objective.told(plan.compared(batch.values)), **batch.shares})
            batches.append(batch)
            done += len(batch.evaluated)
            idle = 0 if len(batch.evaluated) else idle + len(batch.genes)
            tick(done, plan.evaluations)
    return _trials(plan, batches)


def _check_told(plan: Plan, score: Scoring, batch: Batch, where: str) -> None:
    """Raises DataError where a logged batch says other costs of an architecture than are computed now, or another cheap score.

    What it costs to score again where that is dear, the checksum of its line stands for.
    """
    population, mine = as_population(batch.genes), batch.evaluated
    now = {name: values for limit in plan.limits for name, values in limit.values(population).items()}
    if not score.expensive:
        now[ACCURACY] = np.full(len(batch.genes), np.nan)
        now[ACCURACY][mine] = _scores(plan.space, score, population[:, mine]).values
    for name, values in now.items():
        apart = np.flatnonzero(~np.isclose(batch.values[name], values, rtol=SAME, atol=0, equal_nan=True))
        if len(apart):
            at = int(apart[0])
            raise DataError(
                f"{where}: {name} of architecture {batch.genes[at].tobytes().hex()} is {batch.values[name][at]:.6g} there, and "
                f"{values[at]:.6g} as it is computed now: the log was edited, or what tells {name} is another by now. Restore "
                "it, or choose another --out."
            )


def _listed(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """As JSON has them."""
    return {name: without_nan(column.tolist()) for name, column in values.items()}


def _in_a_row(failures: int, accuracy: np.ndarray, failed: Mapping[int, str]) -> int:
    """How many architectures failed since the last one that did not; what is no network counts as neither."""
    for at, value in enumerate(accuracy):
        failures = failures + 1 if at in failed else 0 if np.isfinite(value) else failures
    return failures


def _within(tick: Tick, done: int, planned: int) -> Callable[[int], None]:
    """Progress within a batch."""
    return lambda more: tick(done + more, planned)


def spares(plan: Plan, score: Scoring) -> bool:
    """Whether what breaks a limit is not scored: where scores are dear, and nothing beyond a limit can win."""
    return score.expensive and plan.objective.hard


def _batch(plan: Plan, score: Scoring, asked: Genes, done: Callable[[int], None]) -> Batch:
    """Every limited cost, each predicted once; and the accuracy, of those that keep the limits where it is dear."""
    population = as_population(asked)
    costs: dict[str, np.ndarray] = {}
    for limit in plan.limits:
        costs.update(limit.values(population))
    unscored = np.flatnonzero(plan.broken(costs) > 0).tolist() if spares(plan, score) else None
    mine = np.setdiff1d(np.arange(len(asked)), unscored or ())
    accuracy, failed = np.full(len(asked), np.nan), {}
    if len(mine):
        scores = _scores(plan.space, score, population[:, mine], done)
        accuracy[mine] = scores.values
        failed = {int(mine[at]): why for at, why in scores.failed.items()}
    shares = plan.blocks(population) if plan.blocks else {}
    return Batch(asked, {ACCURACY: accuracy, **costs}, failed, unscored, shares)


def _trials(plan: Plan, batches: Sequence[Batch]) -> Trials:
    """All that was evaluated, as one."""
    none = Batch(np.empty((0, len(plan.space.genes)), np.uint8), dict.fromkeys(plan.columns, np.empty(0)), {})
    whole = [none, *batches]
    at = [batch.evaluated for batch in whole]
    values = {name: np.concatenate([b.values[name][mine] for b, mine in zip(whole, at, strict=True)]) for name in plan.columns}
    starts = np.cumsum([0, *map(len, at)])
    return Trials(
        as_population(np.concatenate([batch.genes[mine] for batch, mine in zip(whole, at, strict=True)])),
        values,
        plan.objective.told(plan.compared(values)),
        violation(plan.compared(values), plan.budgets),
        {
            int(start + np.searchsorted(mine, index)): why
            for start, batch, mine in zip(starts, whole, at, strict=False)
            for index, why in batch.failed.items()
        },
        sum(len(batch.unscored or ()) for batch in batches),
    )


def _scores(space: Space, score: Scoring, population: Population, done: Callable[[int], None] = nobody) -> Scores:
    """NaN for what is no network: nobody is asked about it."""
    networks = activity.valid(space, population)
    if networks.all():
        return score(population, done)
    found, failed = np.full(population.shape[1], np.nan), {}
    if networks.any():
        some = score(population[:, networks], done)
        found[networks] = some.values
        failed = {int(np.flatnonzero(networks)[at]): why for at, why in some.failed.items()}
    return Scores(found, failed)


def _column(numbers: Sequence[float | None], n: int) -> np.ndarray:
    """A number for each of n architectures; ValueError and TypeError say that it is none."""
    if len(numbers) != n or any(not isinstance(each, int | float | None) for each in numbers):
        raise ValueError(numbers)
    return np.array(numbers, float)


def _index(at: str | int, n: int) -> int:
    """Of one of n architectures."""
    if not 0 <= int(at) < n:
        raise ValueError(at)
    return int(at)


def _read_log(path: Path, plan: Plan, spared: bool) -> list[Batch]:
    """Whole batches logged before."""
    names = {"genes", *plan.columns, *([SHARES] if plan.blocks else [])}

    def batch(entry: Any) -> Batch:
        if set(entry) - {FAILED, UNSCORED} != names:
            raise ValueError(entry)
        genes = np.frombuffer(bytes.fromhex(entry["genes"]), np.uint8).reshape(-1, len(plan.space.genes))
        if (genes >= [len(gene.choices) for gene in plan.space.genes]).any():
            raise ValueError("a gene has no such choice")
        n = len(genes)
        values = {name: _column(entry[name], n) for name in plan.columns}
        failed = {_index(at, n): str(why) for at, why in dict(entry.get(FAILED, {})).items()}
        shares = {name: _column(each, n) for name, each in dict(entry.get(SHARES, {})).items()}
        unscored = [_index(at, n) for at in entry[UNSCORED]] if UNSCORED in entry else None
        return Batch(genes, values, failed, unscored, shares, spared and UNSCORED not in entry)

    return list(jsonl.read(path, "batch of this search", batch))
