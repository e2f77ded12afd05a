"""Hard constraints: the most accurate architecture whose costs stay within their budgets (survey eq. 11)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.optimize.objective.base import ACCURACY, check_budgets
from hwbench.optimize.problem import MAX, Values


class Constrained:
    """max accuracy subject to cost <= budget, for any number of costs."""

    name: str
    hard = True
    objectives: Mapping[str, str] = {ACCURACY: MAX}

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits: Mapping[str, float] = check_budgets(limits)

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """Accuracy decides among those within all budgets."""
        return {name: values[name] for name in (ACCURACY, *self.limits)}
