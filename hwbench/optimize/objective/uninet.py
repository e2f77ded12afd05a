"""UniNet's reward (Liu et al. 2022): accuracy * (budget / cost) ** alpha, alpha > 0; several costs multiply.

The survey prints budget ** alpha / cost, where alpha would only scale all rewards alike; the exponent belongs to the ratio.
So it is MnasNet's soft reward with gamma = -alpha. No value of alpha is given; MnasNet's 0.07 stands in. The paper's cost
is FLOPs; here it is whatever is limited.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.optimize.objective.base import ACCURACY, FITNESS, ONE_NUMBER, check_budgets, check_positive, ratios
from hwbench.optimize.problem import Values


class Uninet:
    """One number that trades accuracy for cost; no architecture is ruled out."""

    name: str
    hard = False
    objectives = ONE_NUMBER
    limits: Mapping[str, float] = {}

    def __init__(self, limits: Mapping[str, float], alpha: float = 0.07) -> None:
        self.budgets = check_budgets(limits)
        if not 0 < alpha < float("inf"):
            raise UsageError(
                f"alpha must be > 0, got {alpha:g}: a negative exponent would reward dearer networks; give 0.07 or so."
            )
        self.alpha = alpha

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """The reward."""
        share = ratios(values, self.budgets)
        return {FITNESS: check_positive(values[ACCURACY], "UniNet") * (share**-self.alpha).prod(axis=0)}
