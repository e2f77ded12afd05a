"""Constrained evolution (as HAT, Wang et al. 2020, and once-for-all): mutation and crossover of the best so far.

Parents are the best architectures evaluated so far: those within the limits by objective, then the others by how little they
break them. So a tight budget is approached rather than waited for. Of each combination of network-wide genes (width,
depth) only a few are parents: otherwise the first good width takes all places, and changing a width later means changing
every layer with it. Seen on autoformer-tiny (FLOPs with 0, 2 and 10 % noise as cost; 36 searches of 10,000): 14 ended
behind random search without this rule, 3 with it. Half of each generation are mutants (small, middling and large steps),
half children of two parents; what was seen before is replaced.

`strict=1` never asks for what is known to break a limit, as HAT does. With latency known that saves evaluations on
NAS-Bench-201 (regret after 100: 0.61 instead of 1.25 points), but on autoformer-tiny it ends behind random search: the way
to the best leads past the budget.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, crossover, draw_new, mutate, sample


class Evolution:
    """Keeps the best and varies them."""

    name: str

    def __init__(
        self,
        problem: Problem,
        rng: np.random.Generator,
        population: int = 128,
        parents: int = 32,
        mutation_rate: float = 0.1,
        strict: int = 0,
    ) -> None:
        if population < 1 or parents < 1:
            raise UsageError(f"evolution: population and parents must be at least 1, got {population} and {parents}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._initial, self._parents, self._rate, self._strict = population, parents, mutation_rate, bool(strict)
        self._best = np.empty((0, len(problem.genes)), np.uint8)
        self._losses, self._violation = np.empty((0, len(problem.objectives))), np.empty(0)
        self._evaluated = 0
        kinds = math.prod(problem.genes[i][1] for i in problem.wide)
        self._per_kind = max(4, math.ceil(parents / kinds)) if problem.wide else parents

    def ask(self, n: int) -> Genes:
        """Random ones first, then mutants and children of the best."""
        early = self._evaluated < self._initial or not len(self._best)
        if early:
            n = min(n, max(self._initial - self._evaluated, 1))

        def draw(missing: int) -> Genes:
            new = sample(self._problem, missing, self._rng) if early else self._vary(missing)
            return np.asarray(new[self._problem.affordable(new)]) if self._strict else new

        return draw_new(self._problem, n, self._rng, self._seen, draw)

    def tell(self, genes: Genes, values: Values) -> None:
        """Keeps the best parents, a few of each kind."""
        genes = self._problem.check(genes)
        complete = self._problem.complete(genes, values)
        self._seen.new(self._problem.canonical(genes))
        self._evaluated += len(genes)
        together = np.concatenate([self._best, genes])
        losses = np.concatenate([self._losses, self._problem.losses(complete)])
        violation = np.concatenate([self._violation, self._problem.violation(complete)])
        keep = pareto.order(losses, violation)
        if self._problem.wide:
            kinds: Counter[bytes] = Counter()
            few = []
            for i, kind in zip(keep, keys(together[keep][:, self._problem.wide]), strict=True):
                kinds[kind] += 1
                if kinds[kind] <= self._per_kind:
                    few.append(i)
            keep = np.array(few, int)
        keep = keep[: self._parents]
        self._best, self._losses, self._violation = together[keep], losses[keep], violation[keep]

    def _vary(self, n: int) -> Genes:
        count = len(self._best)
        mutants = self._best[self._rng.integers(0, count, n // 2)]
        first, second = (self._best[self._rng.integers(0, count, n - n // 2)] for _ in range(2))
        steps = zip(np.array_split(mutants, 3), (0.0, self._rate / 2, 2 * self._rate), strict=True)
        varied = [mutate(self._problem, part, rate, self._rng) for part, rate in steps]
        return np.concatenate([*varied, crossover(self._problem, first, second, self._rng)])
