"""The sandwich rule (Yu and Huang 2019): the largest subnet, the smallest, and two random ones in every step."""

from __future__ import annotations

import numpy as np

from hwbench.space.activity import canonical, sample
from hwbench.space.base import Space
from hwbench.space.largest import largest

RANDOM = 2


class Sandwich:
    """Bounds what every other subnet can be from both sides."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._largest = largest(space)
        self._smallest = canonical(space, np.zeros((len(space.genes), 1), np.uint8))[:, 0]

    def draw(self, done: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Four subnets, whatever the time."""
        return [self._largest, self._smallest, *sample(self._space, RANDOM, rng).T]
