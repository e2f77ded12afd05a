"""What a search maximises, given accuracy and a cost with a budget.

`fitness` orders architectures that may win; `violation` (0 where the budget is kept, else how far it is
broken, relative) orders those that may not: they stand behind all others, least violation first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hwbench.errors import UsageError


@dataclass(frozen=True)
class Score:
    """Two arrays over a population."""

    fitness: np.ndarray
    violation: np.ndarray

    def order(self) -> np.ndarray:
        """Indices, best first; ties keep their place."""
        return np.lexsort((np.arange(len(self.fitness)), -self.fitness, self.violation))


class Objective(Protocol):
    """The contract of an objective."""

    name: str
    hard: bool
    """Whether breaking the budget rules an architecture out."""

    def score(self, accuracy: np.ndarray, cost: np.ndarray) -> Score:
        """Fitness and violation; `cost` is what the budget is held against."""


def check_budget(budget: float) -> float:
    """A budget is a positive number."""
    if not budget > 0 or budget == float("inf"):
        raise UsageError(f"A budget must be a positive number of milliseconds, got {budget:g}.")
    return float(budget)


def relative_excess(cost: np.ndarray, budget: float) -> np.ndarray:
    """How far the budget is broken; 0 where it is kept."""
    return np.asarray(np.maximum(cost - budget, 0.0) / budget)
