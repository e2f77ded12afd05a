"""Pareto-front evolution (LiteTransformerSearch, Javaheripi et al. 2022): parents are drawn from the front alone.

Each generation is a mix of mutants of front members, children of two of them, and a few random architectures. Where an
objective is known (LiteTransformerSearch: decoder parameters stand for quality), many more children are made than asked
for, and those stay that are not dominated, in the known objectives, by what is there already.
"""

from __future__ import annotations

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.optimize.problem import MAX, Problem, Values
from hwbench.optimize.strategy.base import Archive
from hwbench.optimize.variation import Seen, crossover, draw_new, mutate, sample, sample_new

MORE = 8
"""Children per place, where known objectives can choose among them."""


class ParetoEvolution:
    """Mutates the front."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, start: int = 30, fresh: float = 0.1) -> None:
        if start < 1 or not 0 <= fresh <= 1:
            raise UsageError(f"pareto_evolution: start must be at least 1 and fresh within 0 .. 1, got {start} and {fresh:g}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._start, self._fresh = Archive(problem), start, fresh
        self._free = [name for name in problem.objectives if name in problem.known]

    def ask(self, n: int) -> Genes:
        """Random ones first, then what the front gives."""
        missing = self._start - len(self._seen)
        if missing > 0 or not len(self._archive.front()):
            return sample_new(self._problem, min(n, max(missing, 1)), self._rng, self._seen)
        parents = self._archive.genes[self._archive.front()]

        def draw(missing: int) -> Genes:
            return self._chosen(self._children(parents, missing), missing)

        return draw_new(self._problem, n, self._rng, self._seen, draw)

    def tell(self, genes: Genes, values: Values) -> None:
        """Updates the front."""
        self._archive.add(genes, values)
        self._seen.new(self._problem.canonical(genes))

    def _children(self, parents: Genes, n: int) -> Genes:
        count = n * (MORE if self._free else 1)
        fresh = int(self._rng.binomial(count, self._fresh))
        crossed = (count - fresh) // 2
        first, second = (parents[self._rng.integers(0, len(parents), crossed)] for _ in range(2))
        mutants = parents[self._rng.integers(0, len(parents), count - fresh - crossed)]
        rate = 1 / len(self._problem.genes)
        parts = [mutate(self._problem, mutants, rate, self._rng), crossover(self._problem, first, second, self._rng)]
        together = np.concatenate([*parts, sample(self._problem, fresh, self._rng)])
        together = together[self._rng.permutation(count)]
        return np.asarray(together[self._seen.unknown(together)])

    def _chosen(self, children: Genes, n: int) -> Genes:
        """The most promising by what is known of them for free."""
        if not self._free or len(children) <= n:
            return children[:n]
        signs = [-1.0 if self._problem.objectives[name] == MAX else 1.0 for name in self._free]
        losses = np.stack([s * self._problem.known[name](children) for s, name in zip(signs, self._free, strict=True)], axis=1)
        broken = np.zeros(len(children))
        for name, limit in self._problem.limits.items():
            if name in self._problem.known:
                excess = self._problem.known[name](children) - limit
                broken += np.maximum(-excess if self._problem.objectives.get(name) == MAX else excess, 0) / (abs(limit) or 1)
        return np.asarray(children[pareto.order(losses, broken)[:n]])
