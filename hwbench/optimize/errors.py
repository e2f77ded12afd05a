"""What ends a search: limits that no architecture of its space keeps, accuracies that all fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from hwbench.core.errors import MeasurementError, UsageError


class Nearest(TypedDict):
    """An architecture that keeps limits, or breaks them as little as possible."""

    architecture: dict[str, Any]
    costs: dict[str, float]
    """Everything known of it."""
    held: dict[str, float]
    """What of that is held against each limit."""
    broken: float
    """How far limits are broken, relative, summed; 0 where all are kept."""


class InfeasibleBudget(UsageError):
    """No architecture of the space keeps all limits.

    `least` is the smallest value of each limited cost that the space reaches, the others set aside; `nearest` are the
    architectures that break the limits least, nearest first; `path` is the file they are in.
    """

    def __init__(
        self, message: str, *, limits: Mapping[str, float], least: Mapping[str, float], nearest: Sequence[Nearest], path: Path
    ) -> None:
        super().__init__(message)
        self.limits, self.least, self.nearest, self.path = dict(limits), dict(least), list(nearest), path

    @property
    def architecture(self) -> dict[str, Any]:
        """The nearest one."""
        return self.nearest[0]["architecture"]

    @property
    def latency_ms(self) -> float:
        """What is held against the budget of the nearest one."""
        return self.nearest[0]["held"]["latency_ms"]


class TooManyFailures(MeasurementError):
    """No architecture had an accuracy of late; `why` is the last reason."""

    def __init__(self, count: int, why: str) -> None:
        super().__init__(f"{count} architectures in a row have no accuracy; the last: {why}.")
        self.why = why
