"""Cost: anything a search limits or minimises, as arrays over a population."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hwbench.core.genes import ENUMERABLE
from hwbench.network.spec import OpSpec
from hwbench.optimize import space_problem
from hwbench.optimize.problem import MIN
from hwbench.optimize.space_problem import as_genes, as_population
from hwbench.optimize.variation import Seen, everything, neighbours
from hwbench.predictor.base import SpaceLatency
from hwbench.space import activity
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledMaximum, CompiledSum

SUM, MAXIMUM = "sum", "maximum"
"""How a cost combines over the ops of a network."""
DRAWS, STARTS = 2000, 20
"""Random architectures looked at for the cheapest of a space that cannot be listed, and how many are followed from there."""


@dataclass(frozen=True)
class Cost:
    """One named quantity of an architecture."""

    name: str
    unit: str
    value: Callable[[Population], np.ndarray]
    both: Callable[[Population], tuple[np.ndarray, np.ndarray]]
    """(value, what it will not exceed), by one prediction; the same numbers twice where the value is exact."""
    least: Callable[[], tuple[float, np.ndarray]]
    """(smallest upper bound any architecture of the space is known to reach, that architecture)."""
    compiled: CompiledSum | CompiledMaximum | None
    """How the value combines over ops; None where it does not."""
    margin: float | None
    """The upper bound is (1 + margin) times the value; None where no single number says so."""
    upper_name: str | None = None
    """What the upper bound is called; None where the value is exact."""

    def upper(self, population: Population) -> np.ndarray:
        """What the value will not exceed; the value itself where it is exact."""
        return self.both(population)[1]


def op_cost(
    space: Space,
    name: str,
    unit: str,
    op_value: Callable[[Sequence[OpSpec]], np.ndarray],
    constant: float = 0.0,
    margin: float = 0.0,
    combine: str = SUM,
) -> Cost:
    """A cost that adds over ops, or is that of the largest; its upper bound is (1 + margin) times the value."""
    compiled = CompiledSum(space, op_value, constant) if combine == SUM else CompiledMaximum(space, op_value)
    return _bounded(name, unit, compiled, margin)


def _bounded(
    name: str, unit: str, compiled: CompiledSum | CompiledMaximum, margin: float, upper_name: str | None = None
) -> Cost:
    def both(population: Population) -> tuple[np.ndarray, np.ndarray]:
        value = compiled(population)
        return value, value * (1 + margin)

    def least() -> tuple[float, np.ndarray]:
        value, column = compiled.minimum()
        return value * (1 + margin), column

    return Cost(name, unit, compiled, both, least, compiled, margin, upper_name)


def latency_cost(latency: SpaceLatency, space: Space, name: str, upper_name: str | None = None) -> Cost:
    """What a predictor tells of a space, whatever its kind; a compiled sum makes it fast and its least value exact."""
    if latency.compiled is not None and latency.margin is not None:
        return _bounded(name, "ms", latency.compiled, latency.margin, upper_name)

    def both(population: Population) -> tuple[np.ndarray, np.ndarray]:
        told = latency.predict(population)
        return told.value_ms, told.high_ms

    def value(population: Population) -> np.ndarray:
        return both(population)[0]

    least = cache(lambda: least_found(space, lambda population: both(population)[1]))
    return Cost(name, "ms", value, both, least, None, None, upper_name)


def least_found(space: Space, cost: Callable[[Population], np.ndarray]) -> tuple[float, np.ndarray]:
    """(smallest cost, its architecture) of any cost: exact where the space can be listed, else as far as single steps lead."""
    known = space_problem.problem(space, {"cost": MIN})
    if known.size <= ENUMERABLE:
        columns = as_population(everything(known))
        values = np.where(activity.valid(space, columns), cost(columns), np.inf)
        return float(values.min()), columns[:, int(values.argmin())]
    drawn = activity.sample(space, DRAWS, np.random.default_rng(0))
    best = descend(space, lambda some: np.where(activity.valid(space, some), cost(some), np.inf), drawn, STARTS)
    return float(cost(best[:, :1])[0]), best[:, 0]


def descend(space: Space, loss: Callable[[Population], np.ndarray], start: Population, keep: int) -> Population:
    """The `keep` architectures of least loss, the least first, as far as steps of one gene lead from some."""
    known = space_problem.problem(space, {"loss": MIN})
    seen = Seen()
    best = seen.new(known.canonical(as_genes(start)))
    while True:
        best = best[np.argsort(loss(as_population(best)), kind="stable")[:keep]]
        further = seen.new(neighbours(known, best))
        if not len(further):
            return as_population(best)
        best = np.concatenate([best, further])
