"""AdaBERT's efficiency loss (Chen et al. 2020; survey eq. 16) as a fitness: accuracy - weight * loss, weight >= 0.

Printed: K / K_max * sum over the cell's operations of SIZE + FLOPs, nothing defined. Read as: K cells of at most K_max,
brackets around SIZE + FLOPs, each a share of a maximum (or FLOPs would drown SIZE). K times the sum over one cell is the sum
over the whole network, so K needs no name here: with `params_m` and `macs_m` of the whole network (stem and head included)

    loss = params_m / its budget + macs_m / its budget

where a budget stands for K_max times the maximum; give the largest network's to have the paper's scale, where the loss
is at most 2. Any other limited cost (latency) adds its share in the same way. The weight is not in the survey; 0.1 is ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.optimize.objective.base import ACCURACY, FITNESS, ONE_NUMBER, check_budgets, ratios
from hwbench.optimize.problem import Values

NEEDED = ("params_m", "macs_m")


class Adabert:
    """Accuracy less a share of size and work; no architecture is ruled out."""

    name: str
    hard = False
    objectives = ONE_NUMBER
    limits: Mapping[str, float] = {}

    def __init__(self, limits: Mapping[str, float], weight: float = 0.1) -> None:
        self.budgets = check_budgets(limits)
        missing = [name for name in NEEDED if name not in limits]
        if missing:
            raise UsageError(f"adabert weighs size and work: limit {' and '.join(missing)} too, e.g. --limit {missing[0]}=10.")
        if not 0 <= weight < float("inf"):
            raise UsageError(
                f"weight must be >= 0, got {weight:g}: a negative weight would reward large networks; give 0.1 or so."
            )
        self.weight = weight

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """The fitness."""
        return {FITNESS: values[ACCURACY] - self.weight * ratios(values, self.budgets).sum(axis=0)}
