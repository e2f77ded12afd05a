"""Constrained evolution (as HAT, Wang et al. 2020, and once-for-all): mutation and crossover of the best so far.

Parents are the best architectures ever told, by the objective's order: those within the budget by fitness,
then the others by how little they break it. So a tight budget is approached rather than waited for. Of each
combination of network-wide genes (width, depth) only a few are parents: otherwise the first good width takes
all places, and changing a width later means changing every layer with it. Seen on autoformer-tiny (FLOPs with
0, 2 and 10 % noise as cost; 36 searches of 10,000): 14 ended behind random search without this rule, 3 with it.
Half of each generation are mutants (small, middling and large steps), half children of two parents; what was
seen before is replaced.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from hwbench.errors import UsageError
from hwbench.objective.base import Score
from hwbench.space import base as spaces
from hwbench.space.base import Population, Space
from hwbench.strategy.base import Seen, sample_new


class Evolution:
    """Keeps the best and varies them."""

    name: str

    def __init__(
        self, space: Space, rng: np.random.Generator, population: int = 128, parents: int = 32, mutation_rate: float = 0.1
    ) -> None:
        if population < 1 or parents < 1:
            raise UsageError(f"evolution: population and parents must be at least 1, got {population} and {parents}.")
        self._space, self._rng, self._seen = space, rng, Seen()
        self._initial, self._parents, self._rate = population, parents, mutation_rate
        self._best = np.empty((len(space.genes), 0), np.uint8)
        self._score = Score(np.empty(0), np.empty(0))
        self._told = 0
        self._wide = [i for i, gene in enumerate(space.genes) if gene.layer is None]
        kinds = math.prod(len(space.genes[i].choices) for i in self._wide)
        self._per_kind = max(4, math.ceil(parents / kinds))

    def ask(self, n: int) -> Population:
        """Random ones first, then mutants and children of the best."""
        if self._told < self._initial:
            return sample_new(self._space, min(n, self._initial - self._told), self._rng, self._seen)
        found: list[Population] = []
        missing = n
        for _ in range(20):
            found.append(self._seen.new(self._vary(missing)))
            missing = n - sum(f.shape[1] for f in found)
            if missing <= 0:
                break
        else:
            found.append(sample_new(self._space, missing, self._rng, self._seen))
        return np.concatenate(found, axis=1)

    def tell(self, population: Population, score: Score) -> None:
        """Keeps the best parents, a few of each kind."""
        self._told += population.shape[1]
        together = np.concatenate([self._best, population], axis=1)
        joined = Score(
            np.concatenate([self._score.fitness, score.fitness]), np.concatenate([self._score.violation, score.violation])
        )
        order = joined.order()
        kinds: Counter[bytes] = Counter()
        few = []
        for i, kind in zip(order, spaces.keys(together[self._wide][:, order]), strict=True):
            kinds[kind] += 1
            if kinds[kind] <= self._per_kind:
                few.append(i)
        keep = np.array(few[: self._parents])
        self._best, self._score = together[:, keep], Score(joined.fitness[keep], joined.violation[keep])

    def _vary(self, n: int) -> Population:
        count = self._best.shape[1]
        mutants = self._best[:, self._rng.integers(0, count, n // 2)]
        first, second = (self._best[:, self._rng.integers(0, count, n - n // 2)] for _ in range(2))
        steps = zip(np.array_split(mutants, 3, axis=1), (0.0, self._rate / 2, 2 * self._rate), strict=True)
        varied = [spaces.mutate(self._space, part, rate, self._rng) for part, rate in steps]
        return np.concatenate([*varied, spaces.crossover(self._space, first, second, self._rng)], axis=1)
