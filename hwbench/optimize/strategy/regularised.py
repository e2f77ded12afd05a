"""Regularised evolution (Real et al. 2019): the best of a random few is mutated, the oldest dies."""

from __future__ import annotations

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, draw_new, mutate, sample_new


class Regularised:
    """A queue of architectures; age, not weakness, removes them."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, population: int = 50, sample: int = 10) -> None:
        if population < 2 or not 1 <= sample <= population:
            raise UsageError(
                f"regularised: population must be at least 2 and sample between 1 and it, got {population} and {sample}."
            )
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._size, self._few = population, sample
        self._genes = np.empty((0, len(problem.genes)), np.uint8)
        self._losses, self._violation = np.empty((0, len(problem.objectives))), np.empty(0)
        self._asked = 0

    def ask(self, n: int) -> Genes:
        """Random ones until the queue is full, then mutants."""
        if self._asked < self._size or not len(self._genes):
            new = sample_new(self._problem, min(n, max(self._size - self._asked, 1)), self._rng, self._seen)
        else:
            new = self._mutants(n)
        self._asked += len(new)
        return new

    def tell(self, genes: Genes, values: Values) -> None:
        """The youngest join the queue, the oldest leave it."""
        genes = self._problem.check(genes)
        complete = self._problem.complete(genes, values)
        self._seen.new(self._problem.canonical(genes))
        self._genes = np.concatenate([self._genes, genes])[-self._size :]
        self._losses = np.concatenate([self._losses, self._problem.losses(complete)])[-self._size :]
        self._violation = np.concatenate([self._violation, self._problem.violation(complete)])[-self._size :]

    def _mutants(self, n: int) -> Genes:
        place = np.empty(len(self._genes), int)
        place[pareto.order(self._losses, self._violation)] = np.arange(len(self._genes))

        def draw(missing: int) -> Genes:
            drawn = self._rng.integers(0, len(self._genes), (missing, self._few))
            best = drawn[np.arange(missing), place[drawn].argmin(axis=1)]
            return mutate(self._problem, self._genes[best], 0.0, self._rng)

        return draw_new(self._problem, n, self._rng, self._seen, draw)
