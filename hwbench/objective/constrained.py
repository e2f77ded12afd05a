"""Hard constraint: the most accurate architecture whose cost stays within the budget (survey eq. 11)."""

from __future__ import annotations

import numpy as np

from hwbench.objective.base import Score, check_budget, relative_excess


class Constrained:
    """max accuracy subject to cost <= budget."""

    name: str
    hard = True

    def __init__(self, budget: float) -> None:
        self.budget = check_budget(budget)

    def score(self, accuracy: np.ndarray, cost: np.ndarray) -> Score:
        """Accuracy decides among those within the budget."""
        return Score(accuracy, relative_excess(cost, self.budget))
