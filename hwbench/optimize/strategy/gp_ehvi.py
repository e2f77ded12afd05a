"""hwbench's own strategy: learns every unknown value, and asks where the front is expected to grow most.

- A Gaussian process per unknown value (surrogate.py). What is to be maximised counts as the worst where an architecture
  is invalid, costs are learnt from valid ones alone; where many are invalid, a further process learns which are.
- What is asked next is what adds most to the hypervolume in expectation (two objectives), or improves most on the best
  (one), times the chances that it is valid and that limits are kept. Of several questions at a time, each takes those
  before it as answered.
- Late, when a model has told what it can, every second question is a neighbour of the front, drawn blindly: that finds
  what the model is wrong about, and makes the search as sure as a local one.
- Known values are not learnt but computed; so a search with a compiled cost needs to learn the accuracy alone.

Cost is kept near a millisecond per evaluation (less over a thousand, more over two hundred or with many genes): a process
rests on at most MOST observations, candidates are a pool that is drawn anew at every refit (neighbours of the front,
children of it, random ones), and in between the posterior of the pool is updated, not recomputed.
"""

from __future__ import annotations

import numpy as np

from hwbench.core import pareto
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys
from hwbench.core.pareto import Stairs
from hwbench.optimize.problem import MAX, Problem, Values
from hwbench.optimize.strategy.base import Archive, one_blas_thread
from hwbench.optimize.surrogate import Belief, Process
from hwbench.optimize.variation import Seen, crossover, distinct, everything, mutate, neighbours, sample, sample_new

MOST = 300
"""Observations a process rests on at a refit."""
GROWTH, SLOWEST = 1.3, 60
"""Refits follow when observations have grown by that factor, or by that many."""
LOOKED, SMALL = 240_000, 20_000
"""Candidates times observations at a refit; spaces of at most SMALL combinations are listed."""
KEPT, LUCK = 240, 2.5
"""Candidates that stay in the pool until the next refit: those that gain most if they are that much better than expected."""
NODES = np.array([-1.73, -0.89, -0.28, 0.28, 0.89, 1.73])[:, None]
OTHER = NODES[[3, 0, 4, 1, 5, 2]]
"""Equally likely standard deviations at which uncertain values are looked at, and their order for a second value."""
LEAST, MANY = 5, 0.1
"""Valid observations before values are learnt; share of invalid ones above which it is learnt which are."""
LATE = 200
"""Observations after which every second question is a neighbour of the front."""


class GpEhvi:
    """Gaussian processes over genes, and expected growth of the front."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, start: int = 10) -> None:
        if start < LEAST:
            raise UsageError(f"gp_ehvi: start must be at least {LEAST}, got {start}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._start = Archive(problem), start
        self._processes = {name: Process(problem) for name in problem.names if name not in problem.known}
        self._validity = Process(problem, offsets=(np.inf,))
        self._learnt = self._doubted = False
        """Whether values, and whether validity, are told by processes now."""
        self._all = everything(problem) if problem.size <= SMALL else None
        self._pool = np.empty((0, len(problem.genes)), np.uint8)
        self._free: dict[str, Belief] = {}
        """Known losses of the pool."""
        self._open = self._near = np.empty(0, bool)
        """Which of the pool were not asked yet, and which of it are the neighbours of the front that are tried blindly."""
        self._pending: list[bytes] = []
        """Asked since the last refit and not told yet, in order."""
        self._hoped: list[np.ndarray] = []
        """Their expected losses."""
        self._front = self._ahead = np.empty((0, len(problem.objectives)))
        """Losses of the front, and of the front if everything hoped for comes true."""
        self._worst = np.full(len(problem.objectives), -np.inf)
        """Of all valid ones."""
        self._refit_at = 0

    def ask(self, n: int) -> Genes:
        """A balanced start, then what promises most."""
        with one_blas_thread():
            return self._ask(n)

    def tell(self, genes: Genes, values: Values) -> None:
        """Answers to the open questions complete the posterior; anything else asks for a refit."""
        with one_blas_thread():
            self._tell(genes, values)

    def _ask(self, n: int) -> Genes:
        valid = np.isfinite(self._archive.violation)
        if len(self._seen) < self._start or not valid.any() or (valid.all() and len(valid) < LEAST):
            return self._first(n)
        if not self._processes:
            return self._known_only(n)
        if len(self._archive) >= self._refit_at or self._pending or not self._open.any():
            self._refit(valid)
        found: list[Genes] = []
        while len(found) < n and self._open.any():
            found.append(self._choose())
        asked = self._seen.new(np.stack(found)) if found else self._pool[:0]
        self._pending += keys(asked)
        if len(asked) == n:
            return asked
        # More than the pool holds: random ones; when they are told, all is fitted anew.
        return np.concatenate([asked, sample_new(self._problem, n - len(asked), self._rng, self._seen)])

    def _tell(self, genes: Genes, values: Values) -> None:
        new = self._archive.add(genes, values)
        canonical = self._problem.canonical(np.asarray(genes))
        self._seen.new(canonical)
        violation = self._archive.violation[new]
        valid = np.isfinite(violation)
        if valid.any():
            self._worst = np.maximum(self._worst, self._archive.losses[new[valid]].max(axis=0))
        for losses in self._archive.losses[new[violation <= 0]]:
            self._front = pareto.joined(self._front, losses)
        told = keys(canonical)
        doubted = not valid.all() and self._share_invalid() > MANY
        if self._pending[: len(told)] != told or len(new) != len(told) or doubted > self._doubted:
            self._refit_at, self._pending, self._hoped, self._ahead = 0, [], [], self._front
            return
        self._pending, self._hoped = self._pending[len(told) :], self._hoped[len(told) :]
        self._ahead = self._front
        for hope in self._hoped:
            self._ahead = pareto.joined(self._ahead, hope)
        if self._learnt:
            for name, process in self._processes.items():
                losses = self._losses(name)[new]
                process.answer(losses if self._imputed(name) else np.where(valid, losses, np.nan))
        elif valid.any():
            self._refit_at = 0
        if self._doubted:
            self._validity.answer(np.where(valid, 0.0, 1.0))

    def _first(self, n: int) -> Genes:
        """Random, but every choice of a gene about equally often."""
        rows = max(self._start, n)
        columns = [self._rng.permutation(np.resize(self._rng.permutation(size), rows)) for _, size in self._problem.genes]
        drawn = self._seen.new(self._problem.canonical(np.stack(columns, axis=1).astype(np.uint8)[:n]))
        if len(drawn) < n:
            drawn = np.concatenate([drawn, sample_new(self._problem, n - len(drawn), self._rng, self._seen)])
        return drawn

    # What is learnt

    def _sign(self, name: str) -> float:
        return -1.0 if self._problem.objectives.get(name) == MAX else 1.0

    def _imputed(self, name: str) -> bool:
        """Whether invalid architectures count as the worst: of a quality they have none; what they cost is unknown."""
        return self._problem.objectives.get(name) == MAX

    def _losses(self, name: str) -> np.ndarray:
        """What was told, smaller is better; invalid ones count as the worst."""
        told = self._sign(name) * self._archive.value(name)
        invalid = ~np.isfinite(self._archive.violation)
        return np.where(invalid, told[~invalid].max(), told) if invalid.any() else told

    def _share_invalid(self) -> float:
        return float(np.mean(~np.isfinite(self._archive.violation)))

    def _refit(self, valid: np.ndarray) -> None:
        """Processes on the most telling observations, and a new pool."""
        count = len(valid)
        most = LOOKED // min(count, MOST)
        order = self._archive.order() if count > MOST or self._all is None or len(self._all) > most else np.arange(count)
        used = self._telling(order)
        self._learnt, self._doubted = bool(valid[used].sum() >= LEAST), self._share_invalid() > MANY
        looking = []
        if self._learnt:
            for name, process in self._processes.items():
                mine = used if self._imputed(name) else used[valid[used]]
                process.condition(self._archive.genes[mine], self._losses(name)[mine], self._rng)
                looking.append(process)
        if self._doubted:
            some = np.sort(self._rng.permutation(count)[:MOST])
            self._validity.condition(self._archive.genes[some], np.where(valid[some], 0.0, 1.0), self._rng)
            looking.append(self._validity)
        self._pool = self._candidates(most, order)
        self._pending, self._hoped, self._ahead = [], [], self._front
        if len(self._pool):
            for process in looking:
                process.look(self._pool)
            known = self._problem.known.items()
            self._free = {name: Belief.sure(self._sign(name) * np.asarray(f(self._pool), float)) for name, f in known}
            at = self._promising()
            self._pool = self._pool[at]
            self._free = {name: belief.take(at) for name, belief in self._free.items()}
            for process in looking:
                process.narrow(at)
        self._open = np.ones(len(self._pool), bool)
        self._refit_at = min(int(np.ceil(count * GROWTH)), count + SLOWEST)

    def _telling(self, order: np.ndarray) -> np.ndarray:
        """All observations, or the best and some of the others; as they came."""
        if len(order) <= MOST:
            return np.arange(len(order))
        rest = self._rng.permutation(order[MOST // 2 :])[: MOST - MOST // 2]
        return np.sort(np.concatenate([order[: MOST // 2], rest]))

    # What may be asked

    def _candidates(self, most: int, order: np.ndarray) -> Genes:
        """What may be asked next, none of it asked before."""
        if self._all is not None and len(self._all) <= most:
            self._all = self._all[self._seen.unknown(self._all)]
            return self._all
        good = self._archive.genes[order[:80]]
        near = neighbours(self._problem, good[:40])
        first, second = (good[self._rng.integers(0, len(good), most // 4)] for _ in range(2))
        parts = [
            near[self._rng.permutation(len(near))[: most // 2]],
            crossover(self._problem, first, second, self._rng),
            mutate(self._problem, first, 2 / len(self._problem.genes), self._rng),
        ]
        if self._all is None:
            parts.append(sample(self._problem, most // 4, self._rng))
        else:
            parts.append(self._all[self._rng.integers(0, len(self._all), most // 2)])
        together = distinct(np.concatenate(parts))
        return np.asarray(together[self._seen.unknown(together)])

    def _promising(self) -> np.ndarray:
        """The promising candidates and some others, so that every question after this costs little."""
        self._near = np.zeros(len(self._pool), bool)
        if len(self._archive) >= LATE:
            front = self._archive.genes[self._archive.front()]
            close = np.zeros(len(self._pool), bool)
            for one in front:
                close |= (self._pool != one).sum(axis=1) == 1
            self._near[self._rng.permutation(np.flatnonzero(close))[:SLOWEST]] = True
        at = np.arange(len(self._pool))
        if len(at) > KEPT:
            best = np.argpartition(-self._promise(LUCK), KEPT)[:KEPT]
            at = np.unique(np.concatenate([best, self._rng.choice(at, KEPT // 4), np.flatnonzero(self._near)]))
        self._near = self._near[at]
        return at

    def _choose(self) -> Genes:
        """The candidate that promises most; it is expected to keep its promise from now on."""
        blind = np.flatnonzero(self._near & self._open)
        if len(blind) and self._open.sum() % 2:
            at = int(self._rng.choice(blind))
        else:
            gain = np.where(self._open, self._promise(), -1.0)
            at = int(np.argmax(gain + 1e-12 * gain.max() * self._rng.random(len(gain))))
        self._open[at] = False
        if self._learnt:
            here = slice(at, at + 1)
            hope = np.array([self._belief(name, here).at(0.0)[0] for name in self._problem.objectives])
            self._hoped.append(hope)
            self._ahead = pareto.joined(self._ahead, hope)
            for process in self._processes.values():
                process.expect(at)
        if self._doubted:
            self._validity.expect(at)
        return np.asarray(self._pool[at])

    def _promise(self, luck: float | None = None) -> np.ndarray:
        """Expected gain of the pool; with luck, what it gains if it is better than expected by so much."""
        chance = self._validity.belief().below(0.5) if self._doubted else np.ones(len(self._pool))
        if not self._learnt:
            return chance
        beliefs = {name: self._belief(name) for name in self._problem.names}
        for name, limit in self._problem.limits.items():
            chance = chance * beliefs[name].below(self._sign(name) * limit)
        if not len(self._front):
            return chance
        mine = [beliefs[name] for name in self._problem.objectives]
        if len(mine) == 1:
            return np.asarray(mine[0].improvement(float(self._ahead[0, 0])) * chance)
        if len(mine) > 2:
            return np.asarray(self._scalarised(mine) * chance)
        stairs = Stairs(self._ahead, self._worst)
        if luck is not None:
            return np.asarray(stairs.growth(mine[0].at(-luck), mine[1].at(-luck)) * chance)
        return np.asarray(stairs.growth(mine[0].at(NODES), mine[1].at(OTHER)).mean(axis=0) * chance)

    def _belief(self, name: str, at: slice = slice(None)) -> Belief:
        if name in self._free:
            return self._free[name].take(at)
        return self._processes[name].belief(at)

    def _scalarised(self, beliefs: list[Belief]) -> np.ndarray:
        """Three objectives and more: one draw of every candidate, by one random trade-off."""
        weight = self._rng.dirichlet(np.ones(len(beliefs)))
        low, high = self._ahead.min(axis=0), self._ahead.max(axis=0)
        span = np.where(high > low, high - low, 1.0)
        drawn = np.stack([b.at(self._rng.standard_normal(len(b.mean))) for b in beliefs], axis=1)
        worst = (weight * (drawn - low) / span).max(axis=1) + 0.05 * ((drawn - low) / span) @ weight
        return np.asarray(worst.max() - worst + 1e-9)

    def _known_only(self, n: int) -> Genes:
        """Nothing to learn: the best candidates by what is known."""
        pool = self._candidates(SMALL, self._archive.order())
        if not len(pool):
            return sample_new(self._problem, n, self._rng, self._seen)
        values = {name: np.asarray(f(pool), float) for name, f in self._problem.known.items()}
        order = pareto.order(self._problem.losses(values), self._problem.violation(values))
        return self._seen.new(pool[order[:n]])
