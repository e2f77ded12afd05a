"""Local search: every neighbour of the best not yet looked around; with several objectives, of the front (Pareto local search).

White et al. 2021 found plain local search to be as good as most of NAS on small spaces. When everything good has been
looked around, it starts anew from a random architecture.
"""

from __future__ import annotations

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.strategy.base import Archive
from hwbench.optimize.variation import Seen, neighbours, sample_new


class LocalSearch:
    """Looks around the best, one architecture at a time."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, start: int = 10) -> None:
        if start < 1:
            raise UsageError(f"local_search: start must be at least 1, got {start}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._start, self._asked = Archive(problem), start, 0
        self._explored: set[bytes] = set()
        self._waiting = np.empty((0, len(problem.genes)), np.uint8)

    def ask(self, n: int) -> Genes:
        """The rest of the present neighbourhood, or a new one."""
        if self._asked < self._start or not len(self._archive):
            new = sample_new(self._problem, min(n, max(self._start - self._asked, 1)), self._rng, self._seen)
            self._asked += len(new)
            return new
        self._waiting = self._waiting[self._seen.unknown(self._waiting)]
        if not len(self._waiting):
            self._waiting = self._around()
        new, self._waiting = self._seen.new(self._waiting[:n]), self._waiting[n:]
        return new if len(new) else sample_new(self._problem, 1, self._rng, self._seen)

    def tell(self, genes: Genes, values: Values) -> None:
        """What is better than all before changes where to look; the neighbourhood at hand is finished first."""
        self._archive.add(genes, values)
        self._seen.new(self._problem.canonical(genes))

    def _around(self) -> Genes:
        """The unseen neighbours of a front member nobody looked around, in random order; empty if there is none."""
        front = self._archive.genes[self._archive.front()]
        for at in self._rng.permutation(len(front)):
            key = keys(front[at : at + 1])[0]
            if key in self._explored:
                continue
            self._explored.add(key)
            around = neighbours(self._problem, front[at : at + 1])
            around = around[self._seen.unknown(around)]
            if len(around):
                return np.asarray(around[self._rng.permutation(len(around))])
        return np.empty((0, len(self._problem.genes)), np.uint8)
