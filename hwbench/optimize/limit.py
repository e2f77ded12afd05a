"""Limit: a cost (cost_kind.py lists them) and the most it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwbench.optimize.cost import Cost
from hwbench.optimize.cost_kind import LATENCY, Question, kind_of
from hwbench.optimize.relative_budget import text_of
from hwbench.predictor.models import Chosen
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


@dataclass(frozen=True)
class Limit:
    """A cost and the most it may be."""

    cost: Cost
    at_most: float
    by_upper: bool
    """Whether its upper bound is compared with the limit, where it has one; else its value."""
    chosen: Chosen | None = None
    """The predictor behind it; an exact cost has none."""
    option: str = ""
    """How the command line asks for it; `--limit NAME` if not given."""
    factor: float | None = None
    """How many times the latency of the space's largest architecture it is, where it was asked for like that."""

    @property
    def name(self) -> str:
        """The cost's."""
        return self.cost.name

    @property
    def asked(self) -> str:
        """The limit in words."""
        return f"{self.name} <= {self.at_most:g}"

    @property
    def raised_by(self) -> str:
        """What to raise on the command line, and how far where that is said in the same terms."""
        if self.factor is None:
            return self.option or f"--limit {self.name}"
        reachable = math.ceil(100 * self.factor * self.least()[0] / self.at_most) / 100
        return f"--budget {text_of(self.factor)} to {text_of(reachable)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of everything there is to know of it."""
        return (self.name, self.cost.upper_name) if self.cost.upper_name else (self.name,)

    @property
    def compared_name(self) -> str:
        """Which of its values is compared with the limit."""
        return self.columns[-1] if self.by_upper else self.name

    def values(self, population: Population) -> dict[str, np.ndarray]:
        """Everything there is to know of it, by name, from one prediction."""
        return dict(zip(self.columns, self.cost.both(population), strict=False))

    def compared(self, population: Population) -> np.ndarray:
        """What is compared with the limit."""
        return self.cost.value(population) if self.compared_name == self.name else self.cost.upper(population)

    @property
    def compared_sum(self) -> tuple[float, CompiledSum] | None:
        """What is compared with the limit as (weight, sum over ops); None where it is no such sum."""
        factor = 1.0 if self.compared_name == self.name else None if self.cost.margin is None else 1.0 + self.cost.margin
        compiled = self.cost.compiled
        return (factor, compiled) if factor is not None and isinstance(compiled, CompiledSum) else None

    def least(self) -> tuple[float, np.ndarray]:
        """(the smallest value compared with it that a network of the space reaches, that architecture)."""
        _, column = self.cost.least()
        return float(self.compared(column[:, None])[0]), column


def limits_of(
    space: Space,
    bounds: Mapping[str, float],
    question: Question,
    by_upper: bool = True,
    budget: str | None = None,
    factor: float | None = None,
) -> list[Limit]:
    """Every cost that has a bound, compiled, in the order given.

    Args:
        space: Search space.
        bounds: Cost -> the most it may be.
        question: What costs depend on.
        by_upper: Compare upper bounds of predictions.
        budget: Which of them was asked for as the budget.
        factor: ... and of which share of the largest architecture's latency it was computed.

    Raises:
        UsageError: there is no such cost (the message lists what there is), or it cannot be told of this space.
        MissingOps: a predictor or a table of counts does not know all ops of the space.
    """
    found = []
    for name, at_most in bounds.items():
        cost, chosen = kind_of(name, space, question).compile(space, name, question)
        option = "" if name != budget else "--budget-ms" if name == LATENCY else f"--budget {name}"
        found.append(Limit(cost, at_most, by_upper, chosen, option, factor if name == budget else None))
    return found
