"""Uniform single path (SPOS, Guo et al. 2020): one random subnet per step."""

from __future__ import annotations

import numpy as np

from hwbench.space.activity import sample
from hwbench.space.base import Space


class SinglePath:
    """Uniform over the choices of every gene."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def draw(self, done: float, rng: np.random.Generator) -> list[np.ndarray]:
        """One subnet, whatever the time."""
        return [sample(self._space, 1, rng)[:, 0]]
