"""Random search: the baseline every other strategy must beat."""

from __future__ import annotations

import numpy as np

from hwbench.objective.base import Score
from hwbench.space.base import Population, Space
from hwbench.strategy.base import Seen, sample_new


class Random:
    """Uniform over gene values, without repetition."""

    name: str

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng, self._seen = space, rng, Seen()

    def ask(self, n: int) -> Population:
        """New random architectures."""
        return sample_new(self._space, n, self._rng, self._seen)

    def tell(self, population: Population, score: Score) -> None:
        """Learns nothing."""
