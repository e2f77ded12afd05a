"""Mutants of the best so far, one parent at a time."""

from __future__ import annotations

import numpy as np

from hwbench.optimize.strategy.base import Archive
from hwbench.optimize.variation import Seen, mutate, sample_new


class TheirWalk:
    """Random ones to begin with, and where mutants bring nothing new."""

    def __init__(self, problem, rng, rate: float = 0.2):
        self._problem, self._rng, self._rate = problem, rng, rate
        self._archive, self._seen = Archive(problem), Seen()

    def ask(self, n):
        best = self._archive.genes[self._archive.order()[:1]]
        mutants = best
        if len(best):
            mutants = self._seen.new(mutate(self._problem, np.repeat(best, n, axis=0), self._rate, self._rng))
        return np.concatenate([mutants, sample_new(self._problem, n - len(mutants), self._rng, self._seen)])

    def tell(self, genes, values):
        self._archive.add(genes, values)
        self._seen.new(self._problem.canonical(genes))
