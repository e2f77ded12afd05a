"""What stands in for accuracy: a score per architecture, higher is better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hwbench.space.base import Population, Space


class Proxy(Protocol):
    """The contract of a proxy."""

    name: str
    unit: str

    def compile(self, space: Space) -> Callable[[Population], np.ndarray]:
        """The scoring function of a space."""
