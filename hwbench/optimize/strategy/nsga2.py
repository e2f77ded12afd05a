"""NSGA-II (Deb et al. 2002): a population kept by front and room, parents by tournament, two-parent children, mutation."""

from __future__ import annotations

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, crossover, draw_new, mutate, sample_new


class Nsga2:
    """Generations of `population` architectures."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, population: int = 50, crossover_rate: float = 0.9) -> None:
        if population < 2:
            raise UsageError(f"nsga2: population must be at least 2, got {population}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._size, self._crossed = population, crossover_rate
        self._genes = np.empty((0, len(problem.genes)), np.uint8)
        self._losses, self._violation = np.empty((0, len(problem.objectives))), np.empty(0)
        self._asked = self._evaluated = 0
        """Children of the present generation."""
        self._children: list[tuple[Genes, np.ndarray, np.ndarray]] = []

    def ask(self, n: int) -> Genes:
        """What the generation lacks; random ones in the first."""
        if self._evaluated >= self._size:
            self._select()
        wanted = min(n, max(self._size - self._asked, 1))
        if len(self._genes):
            new = draw_new(self._problem, wanted, self._rng, self._seen, self._born)
        else:
            new = sample_new(self._problem, wanted, self._rng, self._seen)
        self._asked += len(new)
        return new

    def tell(self, genes: Genes, values: Values) -> None:
        """Keeps the children until their generation is complete."""
        genes = self._problem.check(genes)
        complete = self._problem.complete(genes, values)
        self._seen.new(self._problem.canonical(genes))
        self._children.append((genes, self._problem.losses(complete), self._problem.violation(complete)))
        self._evaluated += len(genes)

    def _select(self) -> None:
        """The best of parents and children become the parents; they stay in the order of their rank."""
        parts = [(self._genes, self._losses, self._violation), *self._children]
        genes, losses, violation = (np.concatenate(each) for each in zip(*parts, strict=True))
        keep = pareto.order(losses, violation)[: self._size]
        self._genes, self._losses, self._violation = genes[keep], losses[keep], violation[keep]
        self._children, self._asked, self._evaluated = [], 0, 0

    def _born(self, n: int) -> Genes:
        """Children of winners of tournaments."""
        first, second = self._parents(n), self._parents(n)
        mixed = crossover(self._problem, first, second, self._rng)
        whole = self._rng.random(n) >= self._crossed
        mixed[whole] = first[whole]
        # One gene of each child is redrawn, which is what pymoo does on average.
        return mutate(self._problem, mixed, 0.0, self._rng)

    def _parents(self, n: int) -> Genes:
        """Winners of tournaments of two: parents lie in the order of their rank."""
        return np.asarray(self._genes[self._rng.integers(0, len(self._genes), (n, 2)).min(axis=1)])
