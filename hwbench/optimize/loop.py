"""The ask-score-tell loop: every batch is logged as it is scored, and a log is replayed before anything is scored again."""

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
    """Architectures that were scored together."""

    genes: Genes
    values: Mapping[str, np.ndarray]
    """Accuracy and costs, as they are."""
    failed: Mapping[int, str]
    """Index of one without an accuracy -> why."""
    told: Mapping[str, np.ndarray]
    """What the strategy was told of them."""


def run_trials(plan: Plan, score: Scoring, log: Path, tick: Tick) -> Trials:
    """Asks, scores, logs and tells until the evaluations are spent or the strategy finds nothing new.

    Raises:
        TooManyFailures: the accuracy could not be told of any architecture, for too long.
    """
    past = _read_log(log, {"genes", *plan.columns, *([SHARES] if plan.blocks else [])})
    size = plan.together(score.expensive)
    batches: list[Batch] = []
    done = failures = 0
    keep(f"of {plan.evaluations} evaluations", log.parent, lambda: done)
    with jsonl.appending(log) as append:
        while done < plan.evaluations:
            asked = plan.strategy.ask(min(size, plan.evaluations - done))
            if not len(asked):
                break
            genes = asked.tobytes().hex()
            failed: Mapping[int, str]
            if len(batches) < len(past):
                entry = past[len(batches)]
                if entry["genes"] != genes:
                    raise DataError(f"{log}: batch {len(batches)} is not of this search; choose another --out.")
                values = {name: np.array(entry[name], float) for name in plan.columns}
                shares = {name: np.array(each, float) for name, each in entry.get(SHARES, {}).items()}
                failed = {int(at): why for at, why in entry.get(FAILED, {}).items()}
                failures = _in_a_row(failures, values[ACCURACY], failed)
            else:
                values, failed = _values(plan, score, as_population(asked), _within(tick, done, plan.evaluations))
                failures = _in_a_row(failures, values[ACCURACY], failed)
                if failed and score.gives_up(failures, as_population(asked)):  # not logged: its architectures may be innocent
                    raise TooManyFailures(failures, failed[max(failed)])
                shares = plan.blocks(as_population(asked)) if plan.blocks else {}
                entry = {"genes": genes, **_listed(values), **({SHARES: _listed(shares)} if plan.blocks else {})}
                append({**entry, **({FAILED: failed} if failed else {})})
            told = plan.objective.told(plan.compared(values))
            plan.strategy.tell(asked, {**told, **shares})
            batches.append(Batch(asked, values, failed, told))
            done += len(asked)
            tick(done, plan.evaluations)
    return _trials(plan, batches)


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


def _values(
    plan: Plan, score: Scoring, population: Population, done: Callable[[int], None]
) -> tuple[dict[str, np.ndarray], Mapping[int, str]]:
    """(accuracy and every limited cost, each predicted once; why some have no accuracy)."""
    scores = _scores(plan.space, score, population, done)
    values = {ACCURACY: scores.values}
    for limit in plan.limits:
        values.update(limit.values(population))
    return values, scores.failed


def _trials(plan: Plan, batches: Sequence[Batch]) -> Trials:
    """All batches as one."""
    values = {name: np.concatenate([batch.values[name] for batch in batches]) for name in plan.columns}
    starts = np.cumsum([0, *(len(batch.genes) for batch in batches)])
    return Trials(
        as_population(np.concatenate([batch.genes for batch in batches])),
        values,
        {name: np.concatenate([batch.told[name] for batch in batches]) for name in batches[0].told},
        violation(plan.compared(values), plan.budgets),
        {int(start) + at: why for start, batch in zip(starts, batches, strict=False) for at, why in batch.failed.items()},
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


def _read_log(path: Path, names: set[str]) -> list[dict[str, Any]]:
    """Whole batches logged before."""

    def batch(entry: Any) -> dict[str, Any]:
        if set(entry) - {FAILED} != names:
            raise ValueError(entry)
        return dict(entry)

    return list(jsonl.read(path, "batch of this search", batch))
