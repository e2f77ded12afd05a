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
from hwbench.optimize.variation import Seen, everything, neighbours
from hwbench.predictor.base import SpaceLatency
from hwbench.space import activity
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum

DRAWS, STARTS = 2000, 20
"""Random architectures looked at for the cheapest of a space that cannot be listed, and how many are followed from there."""


@dataclass(frozen=True)
class Cost:
    """One named quantity of an architecture."""

    name: str
    unit: str
    value: Callable[[Population], np.ndarray]
    upper: Callable[[Population], np.ndarray]
    """What the value will not exceed; the value itself where it is exact."""
    least: Callable[[], tuple[float, np.ndarray]]
    """(smallest upper bound any architecture of the space is known to reach, that architecture)."""
    sum: CompiledSum | None
    """What the value adds up from, to be weighed against other costs; None where it does not add up over ops."""
    margin: float | None
    """The upper bound is (1 + margin) times the value; None where no single number says so."""


def summed_cost(
    space: Space,
    name: str,
    unit: str,
    op_value: Callable[[Sequence[OpSpec]], np.ndarray],
    constant: float = 0.0,
    margin: float = 0.0,
) -> Cost:
    """A cost that adds over ops; its upper bound is (1 + margin) times the value."""
    return _bounded(space, name, unit, CompiledSum(space, op_value, constant), margin)


def _bounded(space: Space, name: str, unit: str, compiled: CompiledSum, margin: float) -> Cost:
    def least() -> tuple[float, np.ndarray]:
        value, column = compiled.minimum()
        return value * (1 + margin), column

    return Cost(name, unit, compiled, lambda population: compiled(population) * (1 + margin), least, compiled, margin)


def latency_cost(latency: SpaceLatency, space: Space, name: str) -> Cost:
    """What a predictor tells of a space, whatever its kind; a compiled sum makes it fast and its least value exact."""
    if latency.compiled is not None and latency.margin is not None:
        return _bounded(space, name, "ms", latency.compiled, latency.margin)

    def upper(population: Population) -> np.ndarray:
        return latency.predict(population).high_ms

    def value(population: Population) -> np.ndarray:
        return latency.predict(population).value_ms

    return Cost(name, "ms", value, upper, cache(lambda: least_found(space, upper)), None, None)


def least_found(space: Space, cost: Callable[[Population], np.ndarray]) -> tuple[float, np.ndarray]:
    """(smallest cost, its architecture) of any cost: exact where the space can be listed, else as far as single steps lead."""
    known = space_problem.problem(space, {"cost": MIN})
    if known.size <= ENUMERABLE:
        genes = everything(known)
        columns = np.ascontiguousarray(genes.T)
        found = np.where(activity.valid(space, columns), cost(columns), np.inf)
        return float(found.min()), columns[:, int(found.argmin())]
    drawn = activity.sample(space, DRAWS, np.random.default_rng(0))
    best = descend(space, lambda found: np.where(activity.valid(space, found), cost(found), np.inf), drawn, STARTS)
    return float(cost(best[:, :1])[0]), best[:, 0]


def descend(space: Space, loss: Callable[[Population], np.ndarray], start: Population, keep: int) -> Population:
    """The `keep` architectures of least loss, the least first, as far as steps of one gene lead from some."""
    known = space_problem.problem(space, {"loss": MIN})
    seen = Seen()
    best = seen.new(known.canonical(np.ascontiguousarray(start.T)))
    while True:
        best = best[np.argsort(loss(np.ascontiguousarray(best.T)), kind="stable")[:keep]]
        further = seen.new(neighbours(known, best))
        if not len(further):
            return np.ascontiguousarray(best.T)
        best = np.concatenate([best, further])
