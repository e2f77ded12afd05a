"""Progressive shrinking (once for all, Cai et al. 2020): first the largest subnet alone, then smaller ones join by stages.

In stage k of n every gene may have one of its k largest choices; there are as many stages as the gene with most choices has
choices, all of the same length.
"""

from __future__ import annotations

import numpy as np

from hwbench.space.activity import canonical
from hwbench.space.base import Space


class ProgressiveShrinking:
    """One random subnet per step, of those that have joined."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._sizes = np.array([len(gene.choices) for gene in space.genes])
        self.stages = int(self._sizes.max())

    def draw(self, done: float, rng: np.random.Generator) -> list[np.ndarray]:
        """One subnet of the stage that the share `done` has reached."""
        stage = min(1 + int(done * self.stages), self.stages)
        least = np.maximum(self._sizes - stage, 0)
        drawn = rng.integers(least, self._sizes).astype(np.uint8)
        return [canonical(self._space, drawn[:, None])[:, 0]]
