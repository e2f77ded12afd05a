"""The ask-score-tell loop: every batch is logged as it is scored, and a log is replayed before anything is scored again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.scorer import Scorer
from hwbench.core import jsonl
from hwbench.core.errors import DataError
from hwbench.core.files import without_nan
from hwbench.core.genes import Genes
from hwbench.core.progress import Tick
from hwbench.optimize.limit import Limit
from hwbench.optimize.objective.base import ACCURACY, Objective
from hwbench.optimize.problem import Problem, violation
from hwbench.optimize.space_problem import as_population
from hwbench.optimize.strategy.base import Strategy
from hwbench.space import activity
from hwbench.space.base import Population, Space

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

    @property
    def budgets(self) -> dict[str, float]:
        """Cost -> the most it may be."""
        return {limit.name: limit.at_most for limit in self.limits}

    @property
    def columns(self) -> tuple[str, ...]:
        """Every value of an architecture that is kept."""
        return (ACCURACY, *(name for limit in self.limits for name in limit.columns))

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


Batch = tuple[Genes, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]
"""Architectures, their values, and what the strategy was told of them."""


def run_trials(plan: Plan, score: Scorer, log: Path, tick: Tick) -> Trials:
    """Asks, scores, logs and tells until the evaluations are spent or the strategy finds nothing new."""
    past = _read_log(log, {"genes", *plan.columns})
    size = DEAR_BATCH if score.expensive else BATCH
    batches: list[Batch] = []
    done = 0
    with jsonl.appending(log) as append:
        while done < plan.evaluations:
            asked = plan.strategy.ask(min(size, plan.evaluations - done))
            if not len(asked):
                break
            genes = asked.tobytes().hex()
            if len(batches) < len(past):
                entry = past[len(batches)]
                if entry["genes"] != genes:
                    raise DataError(f"{log}: batch {len(batches)} is not of this search; choose another --out.")
                values = {name: np.array(entry[name], float) for name in plan.columns}
            else:
                values = _values(plan, score, as_population(asked))
                append({"genes": genes, **{name: without_nan(column.tolist()) for name, column in values.items()}})
            told = plan.objective.told(plan.compared(values))
            plan.strategy.tell(asked, told)
            batches.append((asked, values, told))
            done += len(asked)
            tick(done, plan.evaluations)
    return _trials(plan, batches)


def _values(plan: Plan, score: Scorer, population: Population) -> dict[str, np.ndarray]:
    """Accuracy and every limited cost, each predicted once."""
    values = {ACCURACY: _scores(plan.space, score, population)}
    for limit in plan.limits:
        values.update(limit.values(population))
    return values


def _trials(plan: Plan, batches: Sequence[Batch]) -> Trials:
    """All batches as one."""
    values = {name: np.concatenate([found[name] for _, found, _ in batches]) for name in plan.columns}
    return Trials(
        as_population(np.concatenate([genes for genes, _, _ in batches])),
        values,
        {name: np.concatenate([told[name] for _, _, told in batches]) for name in batches[0][2]},
        violation(plan.compared(values), plan.budgets),
    )


def _scores(space: Space, score: Scorer, population: Population) -> np.ndarray:
    """NaN for what is no network: no proxy is asked about it."""
    networks = activity.valid(space, population)
    found = np.full(population.shape[1], np.nan)
    if networks.any():
        found[networks] = score(population if networks.all() else population[:, networks])
    return found


def _read_log(path: Path, names: set[str]) -> list[dict[str, Any]]:
    """Whole batches logged before."""

    def batch(entry: Any) -> dict[str, Any]:
        if set(entry) != names:
            raise ValueError(entry)
        return dict(entry)

    return list(jsonl.read(path, "batch of this search", batch))
