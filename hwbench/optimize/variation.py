"""New architectures from nothing, from one and from two others; and a memory that lets each pass once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hwbench.core.genes import ENUMERABLE, Genes, keys
from hwbench.optimize.problem import Problem

TRIES, DRAWS = 20, 2000
"""How often new architectures are drawn before a search gives up. In a space too large to be listed it gives up after TRIES
more tries than it takes to draw DRAWS architectures; the space then counts as exhausted."""
MORE, PARENTS = 10, 100
"""So many times as many are found within limits as are asked for, so that not all are alike; so many are varied for that."""


def sample(problem: Problem, n: int, rng: np.random.Generator) -> Genes:
    """Draws n architectures, uniform over gene values; from a pool, uniform over its members."""
    if problem.pool is not None:
        return np.asarray(problem.pool.members[rng.integers(0, len(problem.pool), n)])
    return problem.canonical(_draw(problem, n, rng))


def mutate(problem: Problem, parents: Genes, rate: float, rng: np.random.Generator) -> Genes:
    """Each gene is redrawn with probability `rate`; at least one is redrawn in every architecture."""
    n, genes = parents.shape
    chosen = rng.random((n, genes)) < rate
    chosen[np.arange(n), rng.integers(0, genes, n)] = True
    return problem.made(np.where(chosen, _draw(problem, n, rng), parents), parents)


def crossover(problem: Problem, first: Genes, second: Genes, rng: np.random.Generator) -> Genes:
    """Each gene comes from one parent or the other with equal chance."""
    return problem.made(np.where(rng.random(first.shape) < 0.5, first, second), first, second)


def neighbours(problem: Problem, genes: Genes) -> Genes:
    """Every different architecture one gene away from any of these (in a pool, the nearest), each once, none of these."""
    if problem.pool is not None:
        return problem.pool.around(genes)
    genes = problem.canonical(genes)
    moved = [genes]
    for gene, (_, size) in enumerate(problem.genes):
        for value in range(size):
            other = genes[genes[:, gene] != value]
            other = other.copy()
            other[:, gene] = value
            moved.append(other)
    near = distinct(problem.canonical(np.concatenate(moved)))
    own = set(keys(genes))
    return near[[key not in own for key in keys(near)]]


def everything(problem: Problem) -> Genes:
    """All architectures of a problem, each once; for those of at most ENUMERABLE."""
    if problem.pool is not None:
        return problem.pool.members
    sizes = problem.sizes
    steps = np.cumprod([1, *sizes[:0:-1]])[::-1]  # combinations after which each gene moves on: the last one is fastest
    grid = (np.arange(problem.size)[:, None] // steps % sizes).astype(np.uint8)
    canonical = problem.canonical(grid)
    return canonical if canonical is grid else np.unique(canonical, axis=0)


def distinct(genes: Genes) -> Genes:
    """Each architecture once, in an order of its own."""
    # Equal rows have equal sums; among ten thousand different ones two do so by chance in less than one of 10**9 cases.
    weights = np.random.default_rng(0).integers(1, 2**63, genes.shape[1], dtype=np.uint64)
    _, first = np.unique(genes.astype(np.uint64) @ weights, return_index=True)
    return genes[first]


class Seen:
    """Remembers architectures, so that none is paid for twice."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def new(self, genes: Genes) -> Genes:
        """The architectures not seen before, each once, and remembers them."""
        keep = []
        for i, key in enumerate(keys(genes)):
            if key not in self._keys:
                self._keys.add(key)
                keep.append(i)
        return genes[keep]

    def unknown(self, genes: Genes) -> np.ndarray:
        """Where architectures were not seen yet; remembers nothing."""
        return np.array([key not in self._keys for key in keys(genes)], bool)


def draw_new(
    problem: Problem, n: int, rng: np.random.Generator, seen: Seen, draw: Callable[[int], Genes], tries: int = TRIES
) -> Genes:
    """Up to n architectures not seen before, by `draw(how many are missing)`; after so many tries, random ones fill up."""
    drawn = [np.empty((0, len(problem.genes)), np.uint8)]
    for _ in range(tries):
        missing = n - sum(map(len, drawn))
        if missing <= 0:
            break
        drawn.append(seen.new(draw(missing)))
    missing = n - sum(map(len, drawn))
    if missing > 0:
        drawn.append(sample_new(problem, missing, rng, seen))
    return np.concatenate(drawn)


def sample_new(problem: Problem, n: int, rng: np.random.Generator, seen: Seen) -> Genes:
    """Up to n random architectures not seen before; fewer only where (nearly) all were."""
    drawn = [seen.new(sample(problem, n, rng))]
    tries = TRIES if problem.size <= ENUMERABLE else TRIES + DRAWS // max(n, 1)
    while sum(map(len, drawn)) < n and tries:
        drawn.append(seen.new(sample(problem, n - sum(map(len, drawn)), rng)))
        tries -= 1
    missing = n - sum(map(len, drawn))
    if missing and problem.size <= ENUMERABLE:
        rest = everything(problem)
        rest = rest[seen.unknown(rest)]
        drawn.append(seen.new(rest[rng.permutation(len(rest))[:missing]]))
    return np.concatenate(drawn)


def sample_within(problem: Problem, n: int, rng: np.random.Generator, seen: Seen, start: Genes) -> Genes:
    """Up to n unseen architectures that keep every known limit; fewer only where no more are found.

    Random ones at first. Where limits are so tight that these are too few, whoever breaks limits least is varied until limits
    are kept, and whoever keeps them is varied further; those of `start` count, too. Nothing is remembered as seen.
    """
    listed = problem.size <= ENUMERABLE
    drawn = everything(problem) if listed else np.concatenate([start, sample(problem, DRAWS, rng)])
    within = _fresh_within(problem, drawn, seen)
    best, excess = _nearest(problem, drawn, rng)
    idle = 0
    while not listed and len(within) < MORE * n and idle < TRIES:
        mutants, first, second = (best[rng.integers(0, len(best), DRAWS // 2)] for _ in range(3))
        children = np.concatenate([mutate(problem, mutants, 0.0, rng), crossover(problem, first, second, rng)])
        before = len(within), excess
        within = distinct(np.concatenate([within, _fresh_within(problem, children, seen)]))
        best, excess = _nearest(problem, np.concatenate([best, children]), rng)
        idle = idle + 1 if (len(within), excess) == before else 0
    return np.asarray(within[rng.permutation(len(within))[:n]])


def _fresh_within(problem: Problem, genes: Genes, seen: Seen) -> Genes:
    """Those that keep every known limit and were not seen."""
    kept = distinct(genes[problem.affordable(genes)])
    return np.asarray(kept[seen.unknown(kept)])


def _nearest(problem: Problem, genes: Genes, rng: np.random.Generator) -> tuple[Genes, float]:
    """(the PARENTS that break known limits least, which of equal ones by chance; how far they break them in all)."""
    genes = distinct(genes)
    excess = np.nan_to_num(problem.excess(genes), nan=np.inf)
    order = np.lexsort((rng.random(len(genes)), excess))[:PARENTS]
    return genes[order], float(excess[order].sum())


def _draw(problem: Problem, n: int, rng: np.random.Generator) -> Genes:
    return rng.integers(0, problem.sizes, (n, len(problem.genes)), dtype=np.uint8)
