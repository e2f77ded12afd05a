"""Weighted fitness (survey eq. 13, corrected): (1 - t) * accuracy / accuracy_unit - t * cost / budget, t in [0, 1].

The survey adds the latency, which rewards slow networks, and adds milliseconds to accuracies. Here cost is subtracted, and
both are plain shares: cost of its budget (of several costs the mean, so that t keeps its meaning), accuracy of
`accuracy_unit`, which is what a perfect one is called: 1 for accuracies in [0, 1], 100 for per cent. Nobody can tell which
from the numbers, so it is asked for: `weighted:t=0.3,accuracy_unit=100`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.optimize.objective.base import ACCURACY, FITNESS, ONE_NUMBER, check_budgets, ratios
from hwbench.optimize.problem import Values


class Weighted:
    """Accuracy and cost weighed against each other; no architecture is ruled out."""

    name: str
    hard = False
    objectives = ONE_NUMBER
    limits: Mapping[str, float] = {}

    def __init__(self, limits: Mapping[str, float], t: float = 0.5, accuracy_unit: float = 1.0) -> None:
        self.budgets = check_budgets(limits)
        if not 0 <= t <= 1:
            raise UsageError(f"t must be between 0 (accuracy alone counts) and 1 (cost alone counts), got {t:g}.")
        if not 0 < accuracy_unit < float("inf"):
            raise UsageError(f"accuracy_unit must be positive (1, or 100 for accuracies in per cent), got {accuracy_unit:g}.")
        self.t, self.accuracy_unit = t, accuracy_unit

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """The fitness."""
        gain, price = values[ACCURACY] / self.accuracy_unit, ratios(values, self.budgets).mean(axis=0)
        return {FITNESS: (1 - self.t) * gain - self.t * price}
