"""Bayesian optimisation: a Gaussian process over genes, expected improvement, one random trade-off per architecture (ParEGO).

The kernel is exp(-differing genes / length); length and noise are chosen by likelihood. With several objectives
every architecture is chosen by new weights: it improves the augmented Chebyshev sum of the normalised losses (Knowles 2006),
so that in turn all parts of the front are worked on. Limits multiply the improvement by the probability that they are kept.
"""

from __future__ import annotations

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.gaussian_process import Factor, Posterior
from hwbench.core.genes import Genes
from hwbench.optimize.problem import MAX, Problem, Values
from hwbench.optimize.strategy.base import Archive
from hwbench.optimize.variation import Seen, mutate, neighbours, sample, sample_new

POOL = 1000
"""Architectures among which the most promising is looked for."""
MAX_OBSERVATIONS = 300
"""Observations a process is conditioned on: the best, and the latest."""
LENGTHS = (0.5, 1.0, 2.0, 4.0)
NOISES = (1e-3, 1e-2, 1e-1)
AUGMENTED = 0.05


class Bayesian:
    """Gaussian processes, conditioned anew for every batch."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, start: int = 20) -> None:
        if start < 5:
            raise UsageError(f"bayesian: start must be at least 5, got {start}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._start = Archive(problem), start

    def ask(self, n: int) -> Genes:
        """Random ones first; then each of the n by a trade-off of its own."""
        missing = self._start - len(self._seen)
        valid = np.flatnonzero(self._archive.evaluated)
        if missing > 0 or len(valid) < 5:
            return sample_new(self._problem, min(n, max(missing, 1)), self._rng, self._seen)
        pool = self._pool()
        if not len(pool):
            return sample_new(self._problem, n, self._rng, self._seen)
        used = valid
        if len(valid) > MAX_OBSERVATIONS:
            best = valid[np.argsort(np.argsort(self._archive.order())[valid])[: MAX_OBSERVATIONS // 2]]
            used = np.unique(np.concatenate([best, valid[-MAX_OBSERVATIONS // 2 :]]))
        processes = Processes(self._archive.genes[used], pool)
        allowed = self._allowed(processes, pool, used)
        losses = self._archive.losses[used]
        span = np.ptp(losses, axis=0)
        unit = (losses - losses.min(axis=0)) / np.where(span > 0, span, 1.0)
        kept = self._archive.violation[used] <= 0
        chosen: list[int] = []
        for _ in range(min(n, len(pool))):
            weight = self._rng.dirichlet(np.ones(unit.shape[1]))
            target = (weight * unit).max(axis=1) + AUGMENTED * unit @ weight
            mean, deviation = processes.posterior(target)
            gain = _improvement(mean, deviation, target[kept].min() if kept.any() else target.min()) * allowed
            gain[chosen] = -1.0
            chosen.append(int(np.argmax(gain)))
        return self._seen.new(pool[chosen])

    def tell(self, genes: Genes, values: Values) -> None:
        """More to condition on."""
        self._archive.add(genes, values)
        self._seen.new(self._problem.canonical(genes))

    def _pool(self) -> Genes:
        """Unseen neighbours of the front, mutants of it, random ones."""
        front = self._archive.genes[self._archive.front()]
        near = neighbours(self._problem, front)
        near = near[self._rng.permutation(len(near))[: POOL // 2]]
        parents = front[self._rng.integers(0, len(front), POOL // 4)]
        far = mutate(self._problem, parents, 2 / len(self._problem.genes), self._rng)
        together = np.unique(np.concatenate([near, far, sample(self._problem, POOL // 4, self._rng)]), axis=0)
        return np.asarray(together[self._seen.unknown(together)])

    def _allowed(self, processes: Processes, pool: Genes, used: np.ndarray) -> np.ndarray:
        """Probability that all limits are kept."""
        from scipy.special import ndtr

        chance = np.ones(len(pool))
        for name, limit in self._problem.limits.items():
            sign = -1.0 if self._problem.objectives.get(name) == MAX else 1.0
            if name in self._problem.known:
                chance *= sign * self._problem.known[name](pool) <= sign * limit
            else:
                mean, deviation = processes.posterior(sign * self._archive.value(name)[used])
                chance *= ndtr((sign * limit - mean) / np.maximum(deviation, 1e-12))
        return chance


class Processes:
    """Gaussian processes of every length and noise, on what is known and a pool: factored once, whatever is regressed."""

    def __init__(self, known: Genes, pool: Genes) -> None:
        gap = differing(known, known)
        self._far = differing(pool, known)
        self._factors = {(length, noise): Factor(np.exp(-gap / length), noise) for length in LENGTHS for noise in NOISES}
        self._whitened: dict[tuple[float, float], tuple[np.ndarray, np.ndarray]] = {}

    def posterior(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, deviation) at the pool, by the likeliest of them."""
        middle, spread = y.mean(), y.std() or 1.0
        fitted = {setting: Posterior(factor, (y - middle) / spread) for setting, factor in self._factors.items()}
        setting, best = max(fitted.items(), key=lambda each: each[1].profile_log_likelihood)
        across, variance = self._at_pool(*setting)
        return best.white @ across * spread + middle, np.sqrt(variance * best.scale) * spread

    def _at_pool(self, length: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """(the pool's covariance with what is known, whitened; its variance): many targets share them."""
        if (length, noise) not in self._whitened:
            white = self._factors[length, noise].whiten(np.exp(-self._far / length).T)
            self._whitened[length, noise] = white, np.maximum(1.0 - np.einsum("ij,ij->j", white, white), 1e-9)
        return self._whitened[length, noise]


def differing(first: Genes, second: Genes) -> np.ndarray:
    """Number of genes in which each of the first differs from each of the second."""
    return np.asarray(np.sum([a[:, None] != b for a, b in zip(first.T, second.T, strict=True)], axis=0))


def _improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """Expected improvement of a loss."""
    from scipy.special import ndtr

    z = (best - mean) / deviation
    return np.asarray((best - mean) * ndtr(z) + deviation * np.exp(-z * z / 2) / np.sqrt(2 * np.pi))
