"""Everything hwbench refuses, as one tree.

    HwbenchError
    ├── UsageError           the question cannot be answered as asked: unknown name, negative budget, bad file
    │   ├── UnknownName      a device, space, op, strategy ... nobody registered (with "did you mean")
    │   └── InfeasibleBudget no architecture keeps the limits (carries the least reachable and the nearest ones)
    ├── DataError            a stored file is damaged, edited, foreign or newer than this hwbench
    │   └── EnvironmentMismatch   rows of unlike machines or runtimes (names both values)
    ├── MeasurementError     a device or runtime refused, crashed, hung, or another writer holds the table
    └── MissingOps           a network needs ops that no table covers (lists them and the command to run)

A message says what was asked, what was found and what to do. The command line prints it as one line and
exits with `exit_code`; anything that is not a HwbenchError is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict


class Nearest(TypedDict):
    """An architecture that keeps limits, or breaks them as little as possible."""

    architecture: dict[str, Any]
    costs: dict[str, float]
    """Everything known of it."""
    held: dict[str, float]
    """What of that is held against each limit."""
    broken: float
    """How far limits are broken, relative, summed; 0 where all are kept."""


class HwbenchError(Exception):
    """Base of everything hwbench raises on purpose."""

    exit_code = 1


class UsageError(HwbenchError):
    """What was asked cannot be answered as asked."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that no file, entry point or data folder provides."""


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


class DataError(HwbenchError):
    """A stored file cannot be used: damaged, edited, of another schema or version."""

    exit_code = 3


class EnvironmentMismatch(DataError):
    """Results of unlike environments must not be mixed."""


class MeasurementError(HwbenchError):
    """A measurement could not be taken or must not be trusted."""

    exit_code = 4


class MissingOps(HwbenchError):
    """A network has ops without a latency; `keys` lists them."""

    exit_code = 5

    def __init__(self, message: str, keys: Sequence[str]) -> None:
        super().__init__(message)
        self.keys = tuple(keys)
