"""Several objectives at once: accuracy up and every limited cost down, within their budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwbench.optimize.objective.base import ACCURACY, check_budgets
from hwbench.optimize.problem import MAX, MIN, Values


class Pareto:
    """Passes everything on as it is; the strategy looks for the front."""

    name: str

    def __init__(self, limits: Mapping[str, float], costs: Sequence[str] = ()) -> None:
        """Limits may be empty; `costs` are minimised whether or not they have one: without any of either, the latency."""
        self.limits: Mapping[str, float] = check_budgets(limits) if limits else {}
        self.hard = bool(self.limits)
        minimised = [*costs, *self.limits] or ["latency_ms"]
        self.objectives: Mapping[str, str] = {ACCURACY: MAX, **dict.fromkeys(minimised, MIN)}

    def told(self, values: Values) -> dict[str, np.ndarray]:
        """The values themselves."""
        return {name: values[name] for name in self.objectives}
