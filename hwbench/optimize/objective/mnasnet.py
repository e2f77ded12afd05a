"""MnasNet's reward (Tan et al. 2019): accuracy * (cost / budget) ** gamma, gamma <= 0; several costs multiply.

soft: the same gamma on both sides of the budget; cheaper than asked is rewarded, dearer is punished.
hard: no effect within the budget, gamma beyond it. Even so no architecture is ruled out.
The survey prints the exponent (eq. 12) without its sign; with gamma > 0 slower networks would score higher, so that
is refused here. Paper's values: soft -0.07; hard -1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.optimize.objective.base import ACCURACY, FITNESS, ONE_NUMBER, check_budgets, check_positive, ratios
from hwbench.optimize.problem import Values

VARIANTS = {"soft": {"within": True}, "hard": {"within": False}}


class Mnasnet:
    """One number that trades accuracy for cost; no architecture is ruled out."""

    name: str
    hard = False
    objectives = ONE_NUMBER
    limits: Mapping[str, float] = {}

    def __init__(self, limits: Mapping[str, float], within: bool, gamma: float | None = None) -> None:
        self.budgets = check_budgets(limits)
        self.within = within
        self.gamma = gamma if gamma is not None else (-0.07 if within else -1.0)
        if not self.gamma <= 0:
            raise UsageError(
                f"gamma must be <= 0, got {self.gamma:g}: a positive exponent would reward slower networks; give -0.07 or so."
            )

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """The reward."""
        share = ratios(values, self.budgets)
        factors = np.where((share <= 1) & (not self.within), 1.0, share**self.gamma)
        return {FITNESS: check_positive(values[ACCURACY], "MnasNet") * factors.prod(axis=0)}
