"""What is believed of architectures that were not evaluated: a Gaussian process over genes, for one loss.

Its kernel is a product over genes, so that choices may interact, and says how alike two choices of a gene are: by what
each does to the loss on average (main effects, partly shared between genes of as many choices), or not at all if they
differ. A handful of hyperparameters and the warp of the loss are chosen by likelihood, now and then. In between, the
posterior of a pool of candidates is updated question by question, not recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwbench.core.gaussian_process import Factor, Posterior
from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem

OFFSETS = (np.inf, 0.3, 0.1, 0.03)
"""Of the warp."""
HYPERS: dict[str, tuple[float, ...]] = {
    "alike": (0.0, 0.5, 0.8, 0.95),
    "length": (0.5, 1.0, 2.0),
    "depth": (0.1, 0.2, 0.4, 0.8),
    "linear": (0.0, 1.0, 4.0),
    "noise": (1e-3, 1e-2, 5e-2, 2e-1),
}
"""How far choices with like effects are alike; within which distance of effects; how much a differing gene separates; weight
of the sum of effects beside the product; noise."""
OWN = 0.5
"""Size of a gene's own effects beside those it shares with others."""
TRIES, STEPS, TUNED, LATER = 24, 3, 100, 1.5
"""Random settings tried at the first fit, steps to better neighbours at the first fit (later one), rows tuned on, and by
which factor rows must have grown before the next tuning."""
DOUBT = 0.3
"""Share of the noise that counts as doubt about the loss itself: noise is mostly what the model misses."""
ROOM = 64
"""Questions a pool has room for at first."""


class Process:
    """A Gaussian process over genes for one loss, with the posterior of a pool of candidates."""

    def __init__(self, problem: Problem, offsets: Sequence[float] = OFFSETS) -> None:
        self._sizes = problem.sizes
        self._width = int(self._sizes.max())
        self._offsets = tuple(offsets)
        self._setting: dict[str, float] | None = None
        self._offset = self._offsets[0]
        self._tune_at = 0

    def condition(self, genes: Genes, losses: np.ndarray, rng: np.random.Generator) -> None:
        """Learns warp, effects and hyperparameters, and takes in the observations."""
        if len(genes) >= self._tune_at:
            self._tune(genes, losses, rng)
            self._tune_at = int(np.ceil(len(genes) * LATER))
        assert self._setting is not None
        self._warp = Warp(losses, self._offset)
        y = self._warp.do(losses)
        self._kernel = Kernel(self._setting, self._main_effects(genes, y))
        self._genes = genes
        matrix = self._kernel(genes, genes)
        self._noise = self._setting["noise"] * float(np.mean(np.diag(matrix)))
        observed = Posterior(Factor(matrix, self._noise), y)
        self._factor = observed.factor
        self._amplitude = float(np.sqrt(np.mean(observed.white**2)))
        self._white, self._known = observed.white.astype(np.float32), len(y)

    def look(self, pool: Genes) -> None:
        """The posterior of these candidates. Single precision: noise keeps the factor far from singular."""
        self._pool = pool
        kernel = self._kernel(self._genes, pool, np.float32)
        self._solved = self._factor.whiten(kernel)
        self._mean = self._white @ self._solved
        self._variance = self._kernel.own(pool).astype(np.float32) - np.einsum("ij,ij->j", self._solved, self._solved)
        self._open: list[tuple[np.ndarray, float]] = []
        """(row of the factor, its diagonal) of questions whose answers are not known yet."""
        self._asked = len(self._genes)

    def narrow(self, at: np.ndarray) -> None:
        """Only these candidates from now on, with room for the questions to come."""
        room = np.empty((self._asked + ROOM, len(at)), np.float32)
        room[: self._asked] = self._solved[:, at]
        self._pool, self._mean, self._variance = self._pool[at], self._mean[at], self._variance[at]
        self._solved, self._own = room, self._kernel.own(self._pool)
        self._places = self._pool + np.arange(len(self._sizes)) * self._width
        self._sums = self._kernel.sums(self._pool).astype(np.float32)
        self._white = np.resize(self._white, len(room))

    def expect(self, at: int) -> None:
        """Takes a question as answered as expected: the doubt around it shrinks, the mean stays."""
        count = self._asked
        # The candidate's own column solves the factor already.
        left = self._solved[:count, at].copy()
        rest = float(np.sqrt(max(self._own[at] + self._noise - float(left @ left), 1e-10)))
        row = (self._kernel.row(self._pool[at], self._places, self._sums[at], self._sums) - left @ self._solved[:count]) / rest
        self._variance = self._variance - row * row
        if count == len(self._solved):
            self._solved = np.concatenate([self._solved, np.empty_like(self._solved)])
            self._white = np.resize(self._white, len(self._solved))
        self._solved[count] = row
        self._asked += 1
        self._open.append((left, rest))

    def answer(self, losses: np.ndarray) -> None:
        """The answers to the oldest open questions; NaN leaves the expectation in its place."""
        for value in self._warp.do(losses):
            left, rest = self._open.pop(0)
            known = self._known
            white = 0.0 if np.isnan(value) else (float(value) - float(left @ self._white[:known])) / rest
            self._mean = self._mean + np.float32(white) * self._solved[known]
            self._white[known] = white
            self._known += 1

    def belief(self, at: np.ndarray | slice = slice(None)) -> Belief:
        """Of the pool, or some of it."""
        deviation = self._amplitude * np.sqrt(np.maximum(self._variance[at], 0.0) + DOUBT * self._noise)
        return Belief(self._mean[at].astype(float), deviation.astype(float), self._warp)

    def _tune(self, genes: Genes, losses: np.ndarray, rng: np.random.Generator) -> None:
        """Random settings first, later steps from the best so far."""
        if len(genes) > TUNED:
            few = rng.permutation(len(genes))[:TUNED]
            genes, losses = genes[few], losses[few]
        warped: dict[float, tuple[np.ndarray, np.ndarray, float]] = {}
        tried: dict[tuple[float, ...], float] = {}
        hot = one_hot(genes, self._width)

        def unlikely(setting: Mapping[str, float], offset: float) -> float:
            """Negative log-likelihood, amplitude profiled out."""
            key = (*setting.values(), offset)
            if key in tried:
                return tried[key]
            if offset not in warped:
                warp = Warp(losses, offset)
                y = warp.do(losses)
                warped[offset] = y, self._main_effects(genes, y), warp.slope(losses)
            y, effects, slope = warped[offset]
            matrix = Kernel(setting, effects)(genes, genes, hot=hot)
            noise = setting["noise"] * float(np.mean(np.diag(matrix)))
            tried[key] = -Posterior(Factor(matrix, noise), y).profile_log_likelihood - slope
            return tried[key]

        steps = 1
        if self._setting is None:
            steps = STEPS
            options = [
                ({name: float(rng.choice(values)) for name, values in HYPERS.items()}, float(rng.choice(self._offsets)))
                for _ in range(TRIES)
            ]
            self._setting, self._offset = min(options, key=lambda each: unlikely(*each))
        for _ in range(steps):
            around = [(self._setting, self._offset), *self._around()]
            best = min(around, key=lambda each: unlikely(*each))
            if best == around[0]:
                break
            self._setting, self._offset = best

    def _around(self) -> list[tuple[dict[str, float], float]]:
        """Settings one step away."""
        assert self._setting is not None
        found = []
        for name, values in HYPERS.items():
            at = values.index(self._setting[name])
            found += [
                ({**self._setting, name: v}, self._offset) for v in (*values[max(at - 1, 0) : at], *values[at + 1 : at + 2])
            ]
        at = self._offsets.index(self._offset)
        return found + [(self._setting, o) for o in (*self._offsets[max(at - 1, 0) : at], *self._offsets[at + 1 : at + 2])]

    def _main_effects(self, genes: Genes, y: np.ndarray) -> np.ndarray:
        """[gene, choice]: what a choice does on average, by ridge; partly shared by genes of as many choices."""
        hot = one_hot(genes, self._width)
        hot -= hot.mean(axis=0)
        own = hot.reshape(len(genes), len(self._sizes), self._width)
        groups = [np.flatnonzero(self._sizes == size) for size in np.unique(self._sizes)]
        shared = [own[:, mine].sum(axis=1) for mine in groups]
        gram = sum((part @ part.T for part in shared), OWN**2 * (hot @ hot.T))
        ridge = 0.1 * float(np.trace(gram)) / len(y) + 1e-9
        gram[np.diag_indices(len(y))] += ridge
        alpha = np.linalg.solve(gram, y - y.mean())
        effects = OWN**2 * (alpha @ hot).reshape(len(self._sizes), self._width)
        for mine, part in zip(groups, shared, strict=True):
            effects[mine] += alpha @ part
        return np.asarray(effects)


class Belief:
    """What is believed of one loss of some candidates: normal after a warp."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray, warp: Warp) -> None:
        self.mean, self.deviation, self.warp = mean, deviation, warp

    @classmethod
    def sure(cls, losses: np.ndarray) -> Belief:
        """A known loss."""
        return cls(losses, np.zeros(len(losses)), Warp.none())

    def take(self, at: np.ndarray | slice) -> Belief:
        """Of some of the candidates."""
        return Belief(self.mean[at], self.deviation[at], self.warp)

    def at(self, node: np.ndarray | float) -> np.ndarray:
        """The loss so many deviations from the mean."""
        return self.warp.undo(self.mean + node * self.deviation)

    def below(self, limit: float) -> np.ndarray:
        """Chance that the loss keeps a limit."""
        from scipy.special import ndtr

        gap = self.warp.do(np.array([limit]))[0] - self.mean
        return np.asarray(np.where(self.deviation > 0, ndtr(gap / np.maximum(self.deviation, 1e-12)), gap >= 0))

    def improvement(self, best: float) -> np.ndarray:
        """Expected improvement on the best, in warped losses."""
        from scipy.special import ndtr

        deviation = np.maximum(self.deviation, 1e-12)
        gap = self.warp.do(np.array([best]))[0] - self.mean
        z = gap / deviation
        return np.asarray(gap * ndtr(z) + deviation * np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


class Warp:
    """log((loss - best) / span + offset), standardised: near the best, small differences count; an infinite offset: a line."""

    def __init__(self, losses: np.ndarray, offset: float) -> None:
        self.best, self.offset = float(losses.min()), offset
        self.span = float(np.ptp(losses)) or 1.0
        self.middle, self.spread = 0.0, 1.0
        plain = self.do(losses)
        self.middle, self.spread = float(plain.mean()), float(plain.std()) or 1.0

    @classmethod
    def none(cls) -> Warp:
        """Losses as they are."""
        made = cls(np.array([0.0, 1.0]), np.inf)
        made.middle, made.spread = 0.0, 1.0
        return made

    def do(self, losses: np.ndarray) -> np.ndarray:
        """Warped; beyond what the logarithm holds, at its end."""
        unit = (losses - self.best) / self.span
        plain = unit if np.isinf(self.offset) else np.log(np.maximum(unit + self.offset, 1e-3 * self.offset))
        return np.asarray((plain - self.middle) / self.spread)

    def undo(self, warped: np.ndarray) -> np.ndarray:
        """The losses."""
        plain = warped * self.spread + self.middle
        unit = plain if np.isinf(self.offset) else np.exp(np.minimum(plain, 5.0)) - self.offset
        return np.asarray(unit * self.span + self.best)

    def slope(self, losses: np.ndarray) -> float:
        """Sum of the logarithms of the warp's derivative: what likelihoods of different warps differ by."""
        unit = (losses - self.best) / self.span
        log = 0.0 if np.isinf(self.offset) else -float(np.log(unit + self.offset).sum())
        return log - len(losses) * float(np.log(self.spread * self.span))


class Kernel:
    """How alike architectures are: a product over genes of how alike their choices are, and of their sums of effects."""

    def __init__(self, setting: Mapping[str, float], effects: np.ndarray) -> None:
        self._effects, self._linear = effects, setting["linear"]
        usual = float(np.sqrt(np.mean(effects**2))) or 1.0
        gap = (effects[:, :, None] - effects[:, None]) / (setting["length"] * usual)
        alike = setting["alike"] * np.exp(-gap * gap / 2)
        alike[:, np.arange(effects.shape[1]), np.arange(effects.shape[1])] = 1.0
        self._logs = np.log(1 - (1 - np.exp(-setting["depth"])) * (1 - alike))
        """[gene, choice, choice]."""
        self._genes = np.arange(len(effects))

    def __call__(
        self, first: Genes, second: Genes, dtype: type[np.floating] = np.float64, hot: np.ndarray | None = None
    ) -> np.ndarray:
        """Of all pairs; `hot` is one_hot(first), where it is there already."""
        # Row (gene, choice) of `across`: what that choice contributes to the logarithm, for every second architecture.
        logs = self._logs.astype(dtype)
        across = logs[self._genes[:, None], :, second.T].transpose(0, 2, 1).reshape(-1, len(second))
        found = (one_hot(first, self._logs.shape[1], dtype) if hot is None else hot) @ across
        np.exp(found, out=found)
        if self._linear:
            found += np.outer(self._linear * self.sums(first).astype(dtype), self.sums(second).astype(dtype))
        return np.asarray(found)

    def row(self, one: Genes, places: np.ndarray, its_sum: float, sums: np.ndarray) -> np.ndarray:
        """Of one architecture with others, given as places (gene * width + choice) and their sums of effects."""
        logs = self._logs[self._genes, one].astype(np.float32).ravel()
        found = np.exp(logs[places].sum(axis=1))
        return np.asarray(found + (self._linear * its_sum) * sums if self._linear else found)

    def own(self, genes: Genes) -> np.ndarray:
        """Of each with itself."""
        return np.asarray(1 + self._linear * self.sums(genes) ** 2)

    def sums(self, genes: Genes) -> np.ndarray:
        """Sum of main effects."""
        return np.asarray(self._effects[self._genes, genes].sum(axis=1))


def one_hot(genes: Genes, width: int, dtype: type[np.floating] = np.float64) -> np.ndarray:
    """[n, genes * width]."""
    return np.asarray((genes[:, :, None] == np.arange(width)).reshape(len(genes), -1).astype(dtype))
