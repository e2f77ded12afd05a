"""Random search: the baseline every other strategy must beat.

`strict=1` never asks for what is known to break a limit.
"""

from __future__ import annotations

import numpy as np

from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, sample_new, sample_within


class Random:
    """Uniform over gene values, without repetition."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, strict: int = 0) -> None:
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._strict = bool(strict) and problem.bounded
        self._none = np.empty((0, len(problem.genes)), np.uint8)

    def ask(self, n: int) -> Genes:
        """New random architectures."""
        if not self._strict:
            return sample_new(self._problem, n, self._rng, self._seen)
        return self._seen.new(sample_within(self._problem, n, self._rng, self._seen, self._none))

    def tell(self, genes: Genes, values: Values) -> None:
        """Learns nothing but what not to ask again."""
        self._problem.complete(self._problem.check(genes), values)
        self._seen.new(self._problem.canonical(genes))
