"""hwbench.reward: accuracy and costs as the one number that a controller is rewarded with.

    reward = hwbench.reward("mnasnet-soft", limits={"latency_ms": 12.0})
    reward(accuracy, latency_ms)

The rewards are the objectives of a search (`hwbench list objectives`) that make a single number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.optimize.objective.base import ACCURACY, FITNESS, Objective, make_objective

Numbers: TypeAlias = float | Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Reward:
    """A reward under limits; call it."""

    name: str
    limits: Mapping[str, float]
    """Cost -> budget."""
    objective: Objective

    def __call__(self, accuracy: Numbers, costs: Numbers | Mapping[str, Numbers]) -> np.ndarray:
        """The reward of every architecture; NaN where one of its numbers is.

            >>> reward = hwbench.reward("mnasnet-soft", limits={"latency_ms": 12.0})
            >>> reward([0.71, 0.74], [10.0, 14.0]).round(4)
            array([0.7191, 0.7321])

        Args:
            accuracy: One number per architecture, or a single one.
            costs: What the limit limits, likewise; where there are several limits, a mapping of their names.

        Returns:
            As many numbers as there are architectures; one for a single one.
        """
        if not isinstance(costs, Mapping):
            if len(self.limits) > 1:
                raise UsageError(f"{self.name} has the limits {', '.join(self.limits)}: give the costs as a mapping of names.")
            costs = dict.fromkeys(self.limits, costs)
        if missing := [name for name in self.limits if name not in costs]:
            raise UsageError(f"{self.name} needs {missing[0]}; given are {', '.join(map(str, costs)) or 'no costs'}.")
        values = {ACCURACY: np.asarray(accuracy, float), **{name: np.asarray(costs[name], float) for name in self.limits}}
        shapes = {name: value.shape for name, value in values.items()}
        if len(set(shapes.values())) > 1 or values[ACCURACY].ndim > 1:
            told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise UsageError(f"A reward needs as many costs as accuracies; their shapes are {told}.")
        told_of = self.objective.told({name: np.atleast_1d(value) for name, value in values.items()})[FITNESS]
        return told_of if values[ACCURACY].ndim else told_of[0]

    def __repr__(self) -> str:
        return f"Reward({self.name}, {', '.join(f'{name} {at_most:g}' for name, at_most in self.limits.items())})"


def reward(name: str | type[Objective], limits: Mapping[str, float], gamma: float | None = None) -> Reward:
    """A reward for anyone's own controller, such as MnasNet's.

        >>> hwbench.reward("mnasnet-soft", limits={"latency_ms": 12.0})
        Reward(mnasnet-soft, latency_ms 12)

    Args:
        name: Registered objective that makes one number: mnasnet-soft, mnasnet-hard, uninet, zeroed, weighted, adabert;
            options after a colon: `uninet:alpha=0.1`.
        limits: Cost -> budget, e.g. {"latency_ms": 12.0}.
        gamma: Exponent of the MnasNet rewards, at most 0; the paper's if not given.

    Raises:
        UsageError: it makes several numbers, or a number makes no sense.
    """
    called = registry.named("objective", name)
    made = make_objective(called, limits, gamma)
    if list(made.objectives) != [FITNESS] or made.limits:
        several = ", ".join(dict.fromkeys([*made.objectives, *made.limits]))
        raise UsageError(f"Objective '{called}' tells several numbers ({several}), a reward is one: choose mnasnet-soft, say.")
    return Reward(called, dict(limits), made)
