"""Block-wise evolution (T-Razor's algorithm 1, Zhou et al. 2024): what scores lowest in an architecture is what is changed.

A population of 50 starts at random. Each generation has 25 mutants, architectures of the population whose lowest-scoring blocks
are drawn anew, and 25 children of two, A1 with those blocks replaced that score below the same block of A2. The best of the
population and its offspring are the next population.

A block has a share in the accuracy (`Problem.blocks`; synaptic diversity of an attention block, saliency of an MLP), told
beside it. Shares of unlike blocks cannot be compared, so a block scores its rank among all blocks of its kind in the
population. These ranks are computed here, anew for every generation, from the shares that were told; what an architecture as a
whole is worth is what the search is told, whose ranks (accuracy/ranks.py) are among a fixed sample and stay what they were.

What the paper leaves open, as read here: a quarter of the blocks are drawn anew; both parents are drawn anew for every child;
a block is replaced by taking over its genes where both parents have it, so A1's width and depth stay. What breaks a limit
whose cost is known is never asked for: such mutants and children are drawn again, as are architectures that were seen before;
where nothing new is found, random ones within the limits fill up.

`block-evolution-random` (`positions=random`) is the control: the same evolution, with as many blocks drawn or replaced, but
blocks chosen at random.
"""

from __future__ import annotations

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.optimize.problem import NoBlocks, Problem, Values
from hwbench.optimize.variation import TRIES, Seen, sample_new, sample_within

VARIANTS: dict[str, dict[str, str]] = {"": {}, "random": {"positions": "random"}}
LOWEST, RANDOM = "lowest", "random"


class BlockEvolution:
    """Mutates and replaces the blocks that score lowest."""

    name: str
    needs_blocks = True
    generation: int
    """Architectures that are asked for together."""

    def __init__(
        self,
        problem: Problem,
        rng: np.random.Generator,
        population: int = 50,
        mutants: int = 25,
        children: int = 25,
        part: float = 0.25,
        positions: str = LOWEST,
    ) -> None:
        if population < 2 or min(mutants, children) < 0 or mutants + children < 1 or not 0 < part <= 1:
            raise UsageError(
                "block-evolution: population must be at least 2, mutants and children at least 0 and together 1, part within "
                f"0 .. 1; got {population}, {mutants}, {children} and {part:g}."
            )
        if positions not in (LOWEST, RANDOM):
            raise UsageError(f"block-evolution: positions must be {LOWEST} or {RANDOM}, got '{positions}'.")
        if not problem.blocks:
            raise NoBlocks("block-evolution needs to know what every block has of the accuracy, and this one tells none apart.")
        self._problem, self._rng, self._seen, self._told = problem, rng, Seen(), Seen()
        self._size, self._mutants, self._children = population, mutants, children
        self._part, self._random = part, positions == RANDOM
        self.generation = max(population, mutants + children)
        self._own = np.zeros((len(problem.blocks), len(problem.genes)), bool)
        for at, block in enumerate(problem.blocks):
            self._own[at, list(block.genes)] = True
        self._kinds = [block.kind for block in problem.blocks]
        self._genes = self._due = np.empty((0, len(problem.genes)), np.uint8)
        self._shares, self._violation = np.empty((0, len(problem.blocks))), np.empty(0)
        self._losses = np.empty((0, len(problem.objectives)))

    def ask(self, n: int) -> Genes:
        """Random ones until the population is there; then the offspring of a generation, piece by piece."""
        self._due = self._due[self._told.unknown(self._due)]
        if not len(self._due):
            self._due = self._within(self._size - len(self._told)) if len(self._told) < self._size else self._offspring()
        asked, self._due = self._due[:n], self._due[n:]
        if not len(asked) and not len(self._told):
            raise UsageError("block-evolution found no architecture within the limits to begin with: raise one of them.")
        return asked

    def tell(self, genes: Genes, values: Values) -> None:
        """Keeps what was told; the best of it are the next generation's population."""
        genes = self._problem.check(genes)
        complete, shares = self._problem.complete(genes, values), self._problem.shares(genes, values)
        genes = self._problem.canonical(genes)
        self._seen.new(genes)
        self._told.new(genes)
        self._genes, self._shares = np.concatenate([self._genes, genes]), np.concatenate([self._shares, shares])
        self._losses = np.concatenate([self._losses, self._problem.losses(complete)])
        self._violation = np.concatenate([self._violation, self._problem.violation(complete)])

    def _offspring(self) -> Genes:
        """Mutants and children of the best."""
        keep = pareto.order(self._losses, self._violation)[: self._size]
        self._genes, self._shares = self._genes[keep], self._shares[keep]
        self._losses, self._violation = self._losses[keep], self._violation[keep]
        scores = standing(self._shares, self._kinds)
        found: list[Genes] = []
        whole = self._mutants + self._children
        for _ in range(TRIES):
            missing = whole - sum(map(len, found))
            if missing <= 0:
                break
            mutants = round(missing * self._mutants / whole)
            made = np.concatenate([self._mutated(scores, mutants), self._crossed(scores, missing - mutants)])
            found.append(self._seen.new(made[self._problem.affordable(made)]))
        return np.concatenate([*found, self._within(whole - sum(map(len, found)))])

    def _within(self, n: int) -> Genes:
        """New random architectures."""
        if not self._problem.bounded:
            return sample_new(self._problem, n, self._rng, self._seen)
        return self._seen.new(sample_within(self._problem, n, self._rng, self._seen, self._genes))

    def _mutated(self, scores: np.ndarray, n: int) -> Genes:
        """Members of the population with their lowest-scoring blocks drawn anew."""
        parents = self._rng.integers(0, len(self._genes), n)
        there = np.isfinite(scores[parents])
        count = np.ceil(self._part * there.sum(axis=1)).astype(int)
        chosen = self._first(np.where(there, scores[parents], np.inf), there, count) @ self._own
        drawn = self._rng.integers(0, self._problem.sizes, chosen.shape, dtype=np.uint8)
        return self._problem.made(np.where(chosen, drawn, self._genes[parents]), self._genes[parents])

    def _crossed(self, scores: np.ndarray, n: int) -> Genes:
        """Members of the population with those blocks of another one that score higher there."""
        first, second = self._rng.integers(0, len(self._genes), (2, n))
        both = np.isfinite(scores[first]) & np.isfinite(scores[second])
        lower = both & (scores[first] < scores[second])
        chosen = self._first(np.where(lower, 0.0, 1.0), both, lower.sum(axis=1)) @ self._own
        return self._problem.made(
            np.where(chosen, self._genes[second], self._genes[first]), self._genes[first], self._genes[second]
        )

    def _first(self, scores: np.ndarray, may: np.ndarray, count: np.ndarray) -> np.ndarray:
        """bool[n, blocks]: in every row so many of those that may be chosen, the lowest scores first, equal ones by lot."""
        lot = self._rng.random(scores.shape)
        order = np.lexsort((lot, np.where(may, 0.0 if self._random else scores, np.inf)), axis=-1)
        return np.asarray(np.argsort(order, axis=-1) < count[:, None])


def standing(shares: np.ndarray, kinds: list[str]) -> np.ndarray:
    """float[n, blocks]: the rank of every block among those of its kind, as a part of their number; NaN where there is none."""
    from scipy.stats import rankdata

    found = np.full(shares.shape, np.nan)
    for kind in dict.fromkeys(kinds):
        mine = np.isfinite(shares) & (np.array(kinds) == kind)
        if mine.any():
            found[mine] = rankdata(shares[mine]) / mine.sum()
    return found
