"""MnasNet's reward (Tan et al. 2019): accuracy * (cost / budget) ** gamma, gamma <= 0.

soft: the same gamma on both sides of the budget; faster than asked is rewarded, slower is punished.
hard: no effect within the budget, gamma beyond it.
The survey prints the exponent without its sign; with gamma > 0 slower networks would score higher, so that
is refused here. Paper's values: soft -0.07; hard -1.
"""

from __future__ import annotations

import numpy as np

from hwbench.errors import UsageError
from hwbench.objective.base import Score, check_budget

VARIANTS = {"soft": {"within": True}, "hard": {"within": False}}


class Mnasnet:
    """One number that trades accuracy for cost; no architecture is ruled out."""

    name: str
    hard = False

    def __init__(self, budget: float, within: bool, gamma: float | None = None) -> None:
        self.budget = check_budget(budget)
        self.within = within
        self.gamma = gamma if gamma is not None else (-0.07 if within else -1.0)
        if not self.gamma <= 0:
            raise UsageError(f"gamma must be <= 0, got {self.gamma:g}: a positive exponent would reward slower networks.")

    def score(self, accuracy: np.ndarray, cost: np.ndarray) -> Score:
        """The reward; accuracy must be positive for a product to make sense."""
        if np.any(accuracy <= 0):
            raise UsageError("The MnasNet reward needs positive accuracies; choose another proxy or objective.")
        ratio = cost / self.budget
        exponent = np.where((ratio > 1) | self.within, self.gamma, 0.0)
        return Score(accuracy * ratio**exponent, np.zeros_like(accuracy))
