"""Cost: anything a search limits or minimises, as arrays over a population."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.network.spec import OpSpec
from hwbench.predictor.space_latency import Fitted
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


@dataclass(frozen=True)
class Cost:
    """One named quantity of an architecture."""

    name: str
    unit: str
    value: Callable[[Population], np.ndarray]
    upper: Callable[[Population], np.ndarray]
    """What the value will not exceed; the value itself where it is exact."""
    least: Callable[[], tuple[float, np.ndarray]]
    """(smallest upper bound any architecture of the space reaches, that architecture)."""
    sum: CompiledSum
    """What the value adds up from, to be weighed against other costs."""
    margin: float
    """The upper bound is (1 + margin) times the value."""


def summed_cost(
    space: Space,
    name: str,
    unit: str,
    op_value: Callable[[Sequence[OpSpec]], np.ndarray],
    constant: float = 0.0,
    margin: float = 0.0,
) -> Cost:
    """A cost that adds over ops; its upper bound is (1 + margin) times the value."""
    compiled = CompiledSum(space, op_value, constant)

    def least() -> tuple[float, np.ndarray]:
        value, column = compiled.minimum()
        return value * (1 + margin), column

    return Cost(name, unit, compiled, lambda population: compiled(population) * (1 + margin), least, compiled, margin)


def latency_cost(fitted: Fitted, space: Space, statistic: str) -> Cost:
    """The compiled latency of a space, with the certified upper bound."""
    predictor = fitted.predictors[statistic]
    name = f"latency_ms@{fitted.card['device']}/{fitted.card['runtime']}"

    def op_value(specs: Sequence[OpSpec]) -> np.ndarray:
        fitted.require(specs, space.name)
        return predictor.op_ms(specs)

    return summed_cost(space, name, "ms", op_value, predictor.constant_ms, fitted.margin(statistic, space.name))
