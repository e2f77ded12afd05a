"""Hard constraints: the most accurate architecture whose costs stay within their budgets (survey eq. 11)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.optimize.objective.base import ACCURACY, FITNESS, KEPT, ONE_NUMBER, VIOLATION, check_budgets
from hwbench.optimize.problem import Values, violation


class Constrained:
    """max accuracy subject to cost <= budget, for any number of costs."""

    name: str
    hard = True
    objectives = ONE_NUMBER
    limits = KEPT

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.budgets = check_budgets(limits)

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """Accuracy decides among those within all budgets."""
        return {FITNESS: values[ACCURACY], VIOLATION: violation(values, self.budgets)}
