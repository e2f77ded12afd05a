"""The contract of a rule."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Rule(Protocol):
    """Made with a space whose choices rise; tells which of its architectures learn."""

    def draw(self, done: float, rng: np.random.Generator) -> list[np.ndarray]:
        """The columns of a step, the largest first; `done` is the share of the training that lies behind it."""
