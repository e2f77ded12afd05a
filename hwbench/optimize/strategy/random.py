"""Random search: the baseline every other strategy must beat."""

from __future__ import annotations

import numpy as np

from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, sample_new


class Random:
    """Uniform over gene values, without repetition."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem, self._rng, self._seen = problem, rng, Seen()

    def ask(self, n: int) -> Genes:
        """New random architectures."""
        return sample_new(self._problem, n, self._rng, self._seen)

    def tell(self, genes: Genes, values: Values) -> None:
        """Learns nothing but what not to ask again."""
        self._problem.complete(self._problem.check(genes), values)
        self._seen.new(self._problem.canonical(genes))
