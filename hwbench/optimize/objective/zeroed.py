"""Jiang et al. 2019: the reward is the accuracy, and 0 where any budget is broken (such a network would not be trained).

Unlike `constrained`, the strategy is not told how far a budget is broken: it sees a plain of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.optimize.objective.base import ACCURACY, FITNESS, ONE_NUMBER, check_budgets, check_positive
from hwbench.optimize.problem import Values, violation


class Zeroed:
    """Accuracy within the budgets, 0 beyond."""

    name: str
    hard = True
    objectives = ONE_NUMBER
    limits: Mapping[str, float] = {}

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.budgets = check_budgets(limits)

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """The reward; a product, so that what is invalid stays so."""
        broken = violation(values, self.budgets)
        return {FITNESS: check_positive(values[ACCURACY], "zeroed") * np.where(np.isnan(broken), broken, broken <= 0)}
