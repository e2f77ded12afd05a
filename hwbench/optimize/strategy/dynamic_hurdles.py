"""Progressive dynamic hurdles (Evolved Transformer, So et al. 2019): a child is trained on only if it beats a moving mean.

Every child is first trained briefly; the mean of what a rung has seen is its hurdle, and only children above it get more
training. Parents are drawn from the most-trained rung that has enough of them, so that values of different trainings are
never compared. How far each of the asked architectures is to be trained stands in `fidelity` (shares of a full training,
one per row of the last `ask`). A driver that follows it tells what it did under the same name, and is then asked again
for those that passed; a driver that knows nothing of it trains fully, and nothing is asked twice.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.variation import Seen, draw_new, mutate, sample_new

FIDELITY = "fidelity"
"""Under this name a driver tells how far it trained."""


class DynamicHurdles:
    """Tournament evolution over rungs of training."""

    name: str
    fidelity: np.ndarray
    """Share of a full training for each architecture of the last `ask`."""

    def __init__(
        self, problem: Problem, rng: np.random.Generator, population: int = 30, tournament: int = 5, least: float = 12 / 200
    ) -> None:
        if population < 2 or tournament < 1 or not 0 < least <= 1:
            raise UsageError("dynamic_hurdles: population must be at least 2, tournament at least 1 and least within 0 .. 1.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._size, self._few = population, tournament
        self._rungs = np.unique([least, 1.0])
        self._genes = [np.empty((0, len(problem.genes)), np.uint8) for _ in self._rungs]
        self._losses = [np.empty((0, len(problem.objectives))) for _ in self._rungs]
        self._violation = [np.empty(0) for _ in self._rungs]
        self._promoted: deque[bytes] = deque()
        self._rung: dict[bytes, int] = {}
        """The rung each architecture has reached."""
        self.fidelity = np.empty(0)

    def ask(self, n: int) -> Genes:
        """Those that passed a hurdle first, then new ones at the lowest rung."""
        risen = [self._promoted.popleft() for _ in range(min(n, len(self._promoted)))]
        again = np.frombuffer(b"".join(risen), np.uint8).reshape(-1, len(self._problem.genes))
        born = self._born(n - len(risen))
        self.fidelity = self._rungs[[*(self._rung[key] + 1 for key in risen), *([0] * len(born))]]
        return np.concatenate([again, born])

    def tell(self, genes: Genes, values: Values) -> None:
        """Those above the mean of their rung are to be trained on."""
        genes = self._problem.check(genes)
        complete = self._problem.complete(genes, values)
        trained = np.asarray(values.get(FIDELITY, np.ones(len(genes))), float)
        rungs = np.searchsorted(self._rungs, trained, side="right") - 1
        if trained.shape != (len(genes),) or (rungs < 0).any():
            raise UsageError(
                f"dynamic_hurdles: {FIDELITY} must be one share of a training per architecture, {self._rungs[0]:g} or more."
            )
        genes = self._problem.canonical(genes)
        self._seen.new(genes)
        losses, violation = self._problem.losses(complete), self._problem.violation(complete)
        for rung in np.unique(rungs):
            # What this rung knows already is not told again.
            mine = np.array([self._rung.get(key, -1) < rungs[i] == rung for i, key in enumerate(keys(genes))])
            self._rung.update(dict.fromkeys(keys(genes[mine]), int(rung)))
            self._genes[rung] = np.concatenate([self._genes[rung], genes[mine]])
            self._losses[rung] = np.concatenate([self._losses[rung], losses[mine]])
            self._violation[rung] = np.concatenate([self._violation[rung], violation[mine]])
            if rung + 1 < len(self._rungs):
                # Above the mean of everything this rung has seen: with a rank for a value, the better half.
                better = self._places(rung)[len(self._genes[rung]) - mine.sum() :] < len(self._genes[rung]) / 2
                self._promoted.extend(keys(genes[mine][better & np.isfinite(losses[mine]).all(axis=1)]))

    def _places(self, rung: int) -> np.ndarray:
        """Rank of each architecture of a rung, best 0."""
        place = np.empty(len(self._genes[rung]), int)
        place[pareto.order(self._losses[rung], self._violation[rung])] = np.arange(len(place))
        return place

    def _born(self, n: int) -> Genes:
        """Mutants of the best of random few of the most-trained rung; random ones until it is populated."""
        if len(self._seen) < self._size or not any(map(len, self._genes)):
            return sample_new(self._problem, n, self._rng, self._seen)
        rung = max(r for r, genes in enumerate(self._genes) if len(genes) >= min(self._few, max(map(len, self._genes))))
        genes, place = self._genes[rung], self._places(rung)

        def draw(missing: int) -> Genes:
            drawn = self._rng.integers(0, len(genes), (missing, self._few))
            best = drawn[np.arange(missing), place[drawn].argmin(axis=1)]
            return mutate(self._problem, genes[best], 1 / genes.shape[1], self._rng)

        return draw_new(self._problem, n, self._rng, self._seen, draw)
