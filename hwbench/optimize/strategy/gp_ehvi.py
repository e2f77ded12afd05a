"""Bayesian optimisation by expected hypervolume improvement: what `search` uses by default.

- Model: a Gaussian process over genes for every value that is not known (surrogate.py). Invalid architectures count as the
  worst of what is maximised; costs are learnt from valid ones alone; where many are invalid, a further process learns which.
- Acquisition: with two objectives the expected hypervolume improvement (EHVI; Emmerich, Giannakoglou and Naujoks 2006), its
  expectation taken over six nodes of both values; with one the expected improvement (Jones, Schonlau and Welch 1998); with more
  one posterior draw of a random augmented Chebyshev sum (ParEGO's, Knowles 2006). It is multiplied by the probabilities that an
  architecture is valid and keeps its limits (Schonlau, Welch and Jones 1998).
- Batches are chosen one after the other, each as if those before had been answered by the posterior mean (the Kriging
  believer; Ginsbourger, Le Riche and Carraro 2010). Observations are taken as noisy by the model, but the front they improve
  on is the observed one (it is no noisy EHVI).
- Late, when the model has shown what it can, every second architecture is a random neighbour of the front: that finds what
  the model is wrong about, and makes the search as sure as a local one.
- Known values are computed, not learnt: a search with a compiled cost learns the accuracy alone. What breaks a known limit is
  never asked for, from the first question on (variation.sample_within).

Cost is kept near a millisecond per evaluation (less over a thousand, more over two hundred or with many genes). A process rests
on at most MAX_OBSERVATIONS observations. Candidates are a pool that is drawn anew at every refit: neighbours of the front,
children of it, random ones. In between, the posterior of the pool is updated, not recomputed.
"""

from __future__ import annotations

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.core.pareto import HypervolumeImprovement
from hwbench.optimize.problem import MAX, Problem, Values
from hwbench.optimize.strategy.base import Archive, one_blas_thread
from hwbench.optimize.surrogate import Process, WarpedNormal
from hwbench.optimize.variation import (
    Seen,
    crossover,
    distinct,
    everything,
    mutate,
    neighbours,
    sample,
    sample_new,
    sample_within,
)

MAX_OBSERVATIONS = 300
"""Observations a process rests on at a refit."""
GROWTH, SLOWEST = 1.3, 60
"""Refits follow when observations have grown by that factor, or by that many."""
POOL, SMALL = 240_000, 20_000
"""Candidates times observations at a refit; spaces of at most SMALL combinations are listed."""
KEPT, OPTIMISM = 240, 2.5
"""Candidates that stay in the pool until the next refit: those that gain most if they are so many deviations better than their
mean (a lower confidence bound)."""
NODES = np.array([-1.73, -0.89, -0.28, 0.28, 0.89, 1.73])[:, None]
OTHER = NODES[[3, 0, 4, 1, 5, 2]]
"""Nodes of the expectation: equally likely deviations from the mean, and their order for a second value."""
LEAST, MANY = 5, 0.1
"""Valid observations before values are learnt; share of invalid ones above which it is learnt which are."""
FEW = 500
"""Candidates that a pool has at least, where known limits leave so many."""
LATE = 200
"""Observations after which every second architecture asked for is a neighbour of the front."""


class GpEhvi:
    """Gaussian processes over genes, and expected hypervolume improvement."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, start: int = 10) -> None:
        if start < LEAST:
            raise UsageError(f"gp_ehvi: start must be at least {LEAST}, got {start}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._start = Archive(problem), start
        self._processes = {name: Process(problem) for name in problem.names if name not in problem.known}
        self._validity = Process(problem, offsets=(np.inf,))
        self._has_model = self._models_validity = False
        """Whether values, and whether validity, are predicted by processes now."""
        self._all = self._within(everything(problem)) if problem.size <= SMALL else None
        self._pool = np.empty((0, len(problem.genes)), np.uint8)
        self._known: dict[str, WarpedNormal] = {}
        """Known losses of the pool."""
        self._open = self._near = np.empty(0, bool)
        """Which of the pool were not asked for yet, and which are the neighbours of the front that are drawn at random."""
        self._pending: list[bytes] = []
        """Keys of evaluations that were asked for since the last refit and have no result yet, in order."""
        self._expected: list[np.ndarray] = []
        """Their expected losses."""
        self._front = self._ahead = np.empty((0, len(problem.objectives)))
        """Losses of the front, and of the front if all pending evaluations turn out as expected."""
        self._worst = np.full(len(problem.objectives), -np.inf)
        """Of all valid ones."""
        self._refit_at = 0

    def ask(self, n: int) -> Genes:
        """A balanced start, then the largest acquisition."""
        with one_blas_thread():
            return self._ask(n)

    def tell(self, genes: Genes, values: Values) -> None:
        """Results of pending evaluations complete the posterior; anything else leads to a refit."""
        with one_blas_thread():
            self._tell(genes, values)

    def _ask(self, n: int) -> Genes:
        valid = self._archive.evaluated
        if len(self._seen) < self._start or not valid.any() or (valid.all() and len(valid) < LEAST):
            return self._first(n)
        if not self._processes:
            return self._known_only(n)
        if len(self._archive) >= self._refit_at or self._pending or not self._open.any():
            self._refit(valid)
        chosen: list[Genes] = []
        while len(chosen) < n and self._open.any():
            chosen.append(self._choose())
        asked = self._seen.new(np.stack(chosen)) if chosen else self._pool[:0]
        self._pending += keys(asked)
        if len(asked) == n:
            return asked
        # More than the pool holds: random ones; when their results come, all is fitted anew.
        return np.concatenate([asked, self._new(n - len(asked))])

    def _tell(self, genes: Genes, values: Values) -> None:
        new = self._archive.add(genes, values)
        canonical = self._problem.canonical(np.asarray(genes))
        self._seen.new(canonical)
        valid = self._archive.evaluated[new]
        if valid.any():
            self._worst = np.maximum(self._worst, self._archive.losses[new[valid]].max(axis=0))
        for losses in self._archive.losses[new[self._archive.violation[new] <= 0]]:
            self._front = pareto.joined(self._front, losses)
        done = keys(canonical)
        many_invalid = not valid.all() and self._share_invalid() > MANY
        if self._pending[: len(done)] != done or len(new) != len(done) or many_invalid > self._models_validity:
            self._refit_at, self._pending, self._expected, self._ahead = 0, [], [], self._front
            return
        self._pending, self._expected = self._pending[len(done) :], self._expected[len(done) :]
        self._ahead = self._front
        for losses in self._expected:
            self._ahead = pareto.joined(self._ahead, losses)
        if self._has_model:
            for name, process in self._processes.items():
                losses = self._losses(name)[new]
                process.observe(losses if self._imputed(name) else np.where(valid, losses, np.nan))
        elif valid.any():
            self._refit_at = 0
        if self._models_validity:
            self._validity.observe(np.where(valid, 0.0, 1.0))

    def _first(self, n: int) -> Genes:
        """Random, but every choice of a gene about equally often."""
        rows = max(self._start, n)
        columns = [self._rng.permutation(np.resize(self._rng.permutation(size), rows)) for _, size in self._problem.genes]
        balanced = self._problem.canonical(np.stack(columns, axis=1).astype(np.uint8)[:n])
        drawn = self._seen.new(self._within(balanced))
        return np.concatenate([drawn, self._new(n - len(drawn))]) if len(drawn) < n else drawn

    def _within(self, genes: Genes) -> Genes:
        """Those that keep every known limit."""
        return np.asarray(genes[self._problem.affordable(genes)]) if self._problem.bounded else genes

    def _new(self, n: int) -> Genes:
        """Random ones, within known limits; they count as seen."""
        if not self._problem.bounded:
            return sample_new(self._problem, n, self._rng, self._seen)
        return self._seen.new(sample_within(self._problem, n, self._rng, self._seen, self._archive.genes))

    # The model

    def _sign(self, name: str) -> float:
        return -1.0 if self._problem.objectives.get(name) == MAX else 1.0

    def _imputed(self, name: str) -> bool:
        """Whether invalid architectures count as the worst: of a quality they have none; what they cost is unknown."""
        return self._problem.objectives.get(name) == MAX

    def _losses(self, name: str) -> np.ndarray:
        """Observed losses; invalid architectures count as the worst."""
        losses = self._sign(name) * self._archive.value(name)
        invalid = ~self._archive.evaluated
        return np.where(invalid, losses[~invalid].max(), losses) if invalid.any() else losses

    def _share_invalid(self) -> float:
        return float(np.mean(~self._archive.evaluated))

    def _refit(self, valid: np.ndarray) -> None:
        """Processes conditioned on a choice of observations, and a new pool."""
        observed = len(valid)
        size = POOL // min(observed, MAX_OBSERVATIONS)
        listed = self._all is not None and len(self._all) <= size
        order = np.arange(observed) if listed and observed <= MAX_OBSERVATIONS else self._archive.order()
        models = self._condition(valid, self._observations(order))
        self._pool = self._candidates(size, order)
        self._pending, self._expected, self._ahead = [], [], self._front
        if len(self._pool):
            for process in models:
                process.set_pool(self._pool)
            known = self._problem.known.items()
            self._known = {name: WarpedNormal.exact(self._sign(name) * np.asarray(f(self._pool), float)) for name, f in known}
            at = self._shortlist()
            self._pool = self._pool[at]
            self._known = {name: exact.take(at) for name, exact in self._known.items()}
            for process in models:
                process.keep(at)
        self._open = np.ones(len(self._pool), bool)
        self._refit_at = min(int(np.ceil(observed * GROWTH)), observed + SLOWEST)

    def _condition(self, valid: np.ndarray, used: np.ndarray) -> list[Process]:
        """Conditions the processes that have enough to learn from, and returns them."""
        self._has_model, self._models_validity = bool(valid[used].sum() >= LEAST), self._share_invalid() > MANY
        models = []
        if self._has_model:
            for name, process in self._processes.items():
                mine = used if self._imputed(name) else used[valid[used]]
                process.condition(self._archive.genes[mine], self._losses(name)[mine], self._rng)
                models.append(process)
        if self._models_validity:
            some = np.sort(self._rng.permutation(len(valid))[:MAX_OBSERVATIONS])
            self._validity.condition(self._archive.genes[some], np.where(valid[some], 0.0, 1.0), self._rng)
            models.append(self._validity)
        return models

    def _observations(self, order: np.ndarray) -> np.ndarray:
        """All observations, or the best and some of the others; as they came."""
        if len(order) <= MAX_OBSERVATIONS:
            return np.arange(len(order))
        rest = self._rng.permutation(order[MAX_OBSERVATIONS // 2 :])[: MAX_OBSERVATIONS - MAX_OBSERVATIONS // 2]
        return np.sort(np.concatenate([order[: MAX_OBSERVATIONS // 2], rest]))

    # Candidates

    def _candidates(self, count: int, order: np.ndarray) -> Genes:
        """About so many architectures, none of them asked for before."""
        if self._all is not None and len(self._all) <= count:
            self._all = self._all[self._seen.unknown(self._all)]
            return self._all
        good = self._archive.genes[order[:80]]
        near = neighbours(self._problem, good[:40])
        first, second = (good[self._rng.integers(0, len(good), count // 4)] for _ in range(2))
        parts = [
            near[self._rng.permutation(len(near))[: count // 2]],
            crossover(self._problem, first, second, self._rng),
            mutate(self._problem, first, 2 / len(self._problem.genes), self._rng),
        ]
        if self._all is None:
            parts.append(sample(self._problem, count // 4, self._rng))
        else:
            parts.append(self._all[self._rng.integers(0, len(self._all), count // 2)])
        together = distinct(self._within(np.concatenate(parts)))
        fresh = np.asarray(together[self._seen.unknown(together)])
        if len(fresh) < FEW and self._problem.bounded:  # limits are tight: few children of what keeps them keep them, too
            more = sample_within(self._problem, FEW, self._rng, self._seen, np.concatenate([good, fresh]))
            fresh = distinct(np.concatenate([fresh, more]))
        return fresh

    def _shortlist(self) -> np.ndarray:
        """The promising candidates and some others, so that every choice after this costs little."""
        self._near = np.zeros(len(self._pool), bool)
        if len(self._archive) >= LATE:
            front = self._archive.genes[self._archive.front()]
            close = np.zeros(len(self._pool), bool)
            for one in front:
                close |= (self._pool != one).sum(axis=1) == 1
            self._near[self._rng.permutation(np.flatnonzero(close))[:SLOWEST]] = True
        at = np.arange(len(self._pool))
        if len(at) > KEPT:
            best = np.argpartition(-self._acquisition(OPTIMISM), KEPT)[:KEPT]
            at = np.unique(np.concatenate([best, self._rng.choice(at, KEPT // 4), np.flatnonzero(self._near)]))
        self._near = self._near[at]
        return at

    def _choose(self) -> Genes:
        """The candidate of the largest acquisition; from now on it counts as evaluated, with the posterior mean."""
        near = np.flatnonzero(self._near & self._open)
        if len(near) and self._open.sum() % 2:
            at = int(self._rng.choice(near))
        else:
            gain = np.where(self._open, self._acquisition(), -1.0)
            at = int(np.argmax(gain + 1e-12 * gain.max() * self._rng.random(len(gain))))
        self._open[at] = False
        if self._has_model:
            here = slice(at, at + 1)
            losses = np.array([self._posterior(name, here).at(0.0)[0] for name in self._problem.objectives])
            self._expected.append(losses)
            self._ahead = pareto.joined(self._ahead, losses)
            for process in self._processes.values():
                process.expect(at)
        if self._models_validity:
            self._validity.expect(at)
        return np.asarray(self._pool[at])

    def _acquisition(self, optimism: float | None = None) -> np.ndarray:
        """Expected gain of every candidate; with optimism, its gain if it is so many deviations better than its mean."""
        chance = self._validity.posterior().probability_below(0.5) if self._models_validity else np.ones(len(self._pool))
        if not self._has_model:
            return chance
        posteriors = {name: self._posterior(name) for name in self._problem.names}
        for name, limit in self._problem.limits.items():
            chance = chance * posteriors[name].probability_below(self._sign(name) * limit)
        if not len(self._front):
            return chance
        mine = [posteriors[name] for name in self._problem.objectives]
        if len(mine) == 1:
            return np.asarray(mine[0].expected_improvement(float(self._ahead[0, 0])) * chance)
        if len(mine) > 2:
            return np.asarray(self._scalarised(mine) * chance)
        improvement = HypervolumeImprovement(self._ahead, self._worst)
        if optimism is not None:
            return np.asarray(improvement.of(mine[0].at(-optimism), mine[1].at(-optimism)) * chance)
        return np.asarray(improvement.of(mine[0].at(NODES), mine[1].at(OTHER)).mean(axis=0) * chance)

    def _posterior(self, name: str, at: slice = slice(None)) -> WarpedNormal:
        if name in self._known:
            return self._known[name].take(at)
        return self._processes[name].posterior(at)

    def _scalarised(self, posteriors: list[WarpedNormal]) -> np.ndarray:
        """Three objectives and more: one posterior draw of every candidate, by one random trade-off."""
        weight = self._rng.dirichlet(np.ones(len(posteriors)))
        low, high = self._ahead.min(axis=0), self._ahead.max(axis=0)
        span = np.where(high > low, high - low, 1.0)
        drawn = np.stack([b.at(self._rng.standard_normal(len(b.mean))) for b in posteriors], axis=1)
        worst = (weight * (drawn - low) / span).max(axis=1) + 0.05 * ((drawn - low) / span) @ weight
        return np.asarray(worst.max() - worst + 1e-9)

    def _known_only(self, n: int) -> Genes:
        """Nothing to learn: the best candidates by what is known."""
        pool = self._candidates(SMALL, self._archive.order())
        if not len(pool):
            return self._new(n)
        values = {name: np.asarray(f(pool), float) for name, f in self._problem.known.items()}
        order = pareto.order(self._problem.losses(values), self._problem.violation(values))
        return self._seen.new(pool[order[:n]])
