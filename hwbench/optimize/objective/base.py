"""What a search maximises: raw values in, what a strategy is told out.

An objective is made with budgets, e.g. `limits={"latency_ms": 12.0, "params_m": 8.0}`, and given the accuracy and every
limited cost of architectures. Most make one number of them, the `fitness`. One that rules out who breaks a budget names costs
among its `limits`: such architectures stand behind all others, by how far they break them (problem.violation). A NaN
(evaluated, and invalid) stays one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.optimize.problem import MAX, Values

ACCURACY, FITNESS = "accuracy", "fitness"
ONE_NUMBER = {FITNESS: MAX}
"""The objectives of everything that is a single reward."""


class Objective(Protocol):
    """The contract of an objective; constructed with `limits` (cost -> budget) and its own options."""

    name: str
    hard: bool
    """Whether breaking a budget rules an architecture out."""
    objectives: Mapping[str, str]
    """What the strategy's Problem is to optimise: name -> "max" or "min"."""
    limits: Mapping[str, float]
    """What the strategy's Problem is to keep: name -> most."""

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """Accuracy and limited costs -> everything `objectives` and `limits` name."""


def make_objective(name: str, limits: Mapping[str, float], gamma: float | None = None) -> Objective:
    """The objective of that name, for these budgets.

    Raises:
        UsageError: it takes no gamma, or refuses a number.
    """
    extra = {} if gamma is None else {"gamma": gamma}
    try:
        made: Objective = registry.make("objective", name, limits=limits, **extra)
    except TypeError:
        if gamma is None:
            raise
        raise UsageError(f"Objective '{name}' takes no --gamma.") from None
    return made


def check_budgets(limits: Mapping[str, float]) -> dict[str, float]:
    """The budgets, if there is one and all are positive numbers."""
    if not limits:
        raise UsageError('An objective needs at least one budget, e.g. {"latency_ms": 12.0}.')
    return {name: check_budget(name, budget) for name, budget in limits.items()}


def check_budget(name: str, budget: float) -> float:
    """A budget is a positive number."""
    try:
        number = float(budget)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise UsageError(f"A budget must be a positive number; that of {name} is {budget}.")
    return number


def check_positive(accuracy: np.ndarray, reward: str) -> np.ndarray:
    """The accuracies, if a reward that multiplies them (or puts 0 below them) makes sense."""
    if np.any(accuracy <= 0):
        raise UsageError(f"The {reward} reward needs positive accuracies; choose another proxy or objective.")
    return accuracy


def ratios(values: Values, budgets: Mapping[str, float]) -> np.ndarray:
    """float[budgets, n]: every cost as a share of its budget."""
    return np.stack([np.asarray(values[name], float) / budget for name, budget in budgets.items()])
