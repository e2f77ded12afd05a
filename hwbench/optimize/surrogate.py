"""The model behind `gp_ehvi`: a Gaussian process over genes for one loss, and its posterior at architectures not evaluated yet.

The kernel is a product over genes, so that choices may interact. It says how alike two choices of a gene are: by what each
does to the loss on average (main effects, partly shared between genes of as many choices), or not at all if they differ. A
handful of hyperparameters and the warp of the loss are chosen by likelihood, now and then. In between, the posterior of a
pool of candidates is updated evaluation by evaluation, not recomputed (a row is appended to the Cholesky factor). Evaluations
that are asked for and have no result yet count as done, with the posterior mean as their result: the Kriging believer
(Ginsbourger, Le Riche and Carraro 2010), which lets several be chosen at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwbench.core.gaussian_process import Factor, Posterior
from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem

OFFSETS = (np.inf, 0.3, 0.1, 0.03)
"""Of the warp, to choose from."""
HYPERPARAMETERS: dict[str, tuple[float, ...]] = {
    "alike": (0.0, 0.5, 0.8, 0.95),
    "length": (0.5, 1.0, 2.0),
    "depth": (0.1, 0.2, 0.4, 0.8),
    "linear": (0.0, 1.0, 4.0),
    "noise": (1e-3, 1e-2, 5e-2, 2e-1),
}
"""To choose from: how far choices with like effects are alike; within which distance of effects; how much a differing gene
separates; weight of the sum of effects beside the product; noise."""
OWN = 0.5
"""Size of a gene's own effects beside those it shares with others."""
TRIES, STEPS, TUNED_ROWS, RETUNE = 24, 3, 100, 1.5
"""Random hyperparameters tried at the first fit; steps to better neighbours at the first fit (later one); rows tuned on; by
which factor rows must have grown before the next tuning."""
NOISE_SHARE = 0.3
"""Share of the noise that counts as uncertainty of the loss itself: noise is mostly what the model misses."""
ROOM = 64
"""Evaluations a pool has room for at first."""
Hyperparameters = dict[str, float]


class Process:
    """A Gaussian process over genes for one loss, with the posterior of a pool of candidates."""

    def __init__(self, problem: Problem, offsets: Sequence[float] = OFFSETS) -> None:
        self._sizes = problem.sizes
        self._width = int(self._sizes.max())
        self._offsets = tuple(offsets)
        self._chosen: tuple[Hyperparameters, float] | None = None
        """Hyperparameters of the kernel and offset of the warp."""
        self._tune_at = 0

    def condition(self, genes: Genes, losses: np.ndarray, rng: np.random.Generator) -> None:
        """Learns warp, effects and hyperparameters, and takes in the observations."""
        if self._chosen is None or len(genes) >= self._tune_at:
            self._chosen = self._tuned(genes, losses, rng)
            self._tune_at = int(np.ceil(len(genes) * RETUNE))
        hyperparameters, offset = self._chosen
        self._warp = Warp(losses, offset)
        y = self._warp.do(losses)
        self._kernel = Kernel(hyperparameters, main_effects(genes, y, self._sizes))
        self._genes = genes
        matrix = self._kernel(genes, genes)
        self._noise = hyperparameters["noise"] * float(np.mean(np.diag(matrix)))
        observed = Posterior(Factor(matrix, self._noise), y)
        self._factor = observed.factor
        self._amplitude = float(np.sqrt(np.mean(observed.white**2)))
        self._white, self._known = observed.white.astype(np.float32), len(y)

    def set_pool(self, pool: Genes) -> None:
        """Computes the posterior of these candidates. Single precision: noise keeps the factor far from singular."""
        self._pool = pool
        kernel = self._kernel(self._genes, pool, np.float32)
        self._solved = self._factor.whiten(kernel)
        self._mean = self._white @ self._solved
        self._variance = self._kernel.own(pool).astype(np.float32) - np.einsum("ij,ij->j", self._solved, self._solved)
        self._open: list[tuple[np.ndarray, float]] = []
        """(row of the factor, its diagonal) of evaluations whose results are not known yet."""
        self._asked = len(self._genes)

    def keep(self, at: np.ndarray) -> None:
        """Keeps only these candidates from now on, with room for the evaluations to come."""
        room = np.empty((self._asked + ROOM, len(at)), np.float32)
        room[: self._asked] = self._solved[:, at]
        self._pool, self._mean, self._variance = self._pool[at], self._mean[at], self._variance[at]
        self._solved, self._own = room, self._kernel.own(self._pool)
        self._places = self._pool + np.arange(len(self._sizes)) * self._width
        self._sums = self._kernel.sums(self._pool).astype(np.float32)
        self._white = np.resize(self._white, len(room))

    def expect(self, at: int) -> None:
        """Takes a candidate as evaluated with the posterior mean: the variance around it shrinks, the mean stays."""
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

    def observe(self, losses: np.ndarray) -> None:
        """Takes in the results of the oldest pending evaluations; NaN leaves the expectation in its place."""
        for value in self._warp.do(losses):
            left, rest = self._open.pop(0)
            known = self._known
            white = 0.0 if np.isnan(value) else (float(value) - float(left @ self._white[:known])) / rest
            self._mean = self._mean + np.float32(white) * self._solved[known]
            self._white[known] = white
            self._known += 1

    def posterior(self, at: np.ndarray | slice = slice(None)) -> WarpedNormal:
        """The loss of every candidate of the pool, or of some."""
        deviation = self._amplitude * np.sqrt(np.maximum(self._variance[at], 0.0) + NOISE_SHARE * self._noise)
        return WarpedNormal(self._mean[at].astype(float), deviation.astype(float), self._warp)

    def _tuned(self, genes: Genes, losses: np.ndarray, rng: np.random.Generator) -> tuple[Hyperparameters, float]:
        """The likeliest hyperparameters and offset: random ones at first, later single steps from those chosen before."""
        if len(genes) > TUNED_ROWS:
            few = rng.permutation(len(genes))[:TUNED_ROWS]
            genes, losses = genes[few], losses[few]
        likelihood = Likelihood(genes, losses, self._sizes)
        best, steps = self._chosen, 1
        if best is None:
            steps = STEPS
            options = [
                (
                    {name: float(rng.choice(values)) for name, values in HYPERPARAMETERS.items()},
                    float(rng.choice(self._offsets)),
                )
                for _ in range(TRIES)
            ]
            best = min(options, key=likelihood.negative_log)
        for _ in range(steps):
            better = min([best, *self._one_step_from(*best)], key=likelihood.negative_log)
            if better == best:
                break
            best = better
        return best

    def _one_step_from(self, chosen: Hyperparameters, offset: float) -> list[tuple[Hyperparameters, float]]:
        """The next smaller and the next larger value of every hyperparameter, and of the offset."""
        steps = [
            ({**chosen, name: value}, offset)
            for name, values in HYPERPARAMETERS.items()
            for value in _beside(values, chosen[name])
        ]
        return steps + [(chosen, value) for value in _beside(self._offsets, offset)]


class Likelihood:
    """How likely observations are under hyperparameters and a warp; the amplitude is the likeliest one."""

    def __init__(self, genes: Genes, losses: np.ndarray, sizes: np.ndarray) -> None:
        self._genes, self._losses, self._sizes = genes, losses, sizes
        self._hot = one_hot(genes, int(sizes.max()))
        self._warped: dict[float, tuple[np.ndarray, np.ndarray, float]] = {}
        """Offset -> warped losses, their main effects, the warp's slope."""
        self._computed: dict[tuple[float, ...], float] = {}

    def negative_log(self, tried: tuple[Hyperparameters, float]) -> float:
        """Negative log likelihood of (hyperparameters, offset of the warp)."""
        hyperparameters, offset = tried
        key = (*hyperparameters.values(), offset)
        if key not in self._computed:
            y, effects, slope = self._warp(offset)
            matrix = Kernel(hyperparameters, effects)(self._genes, self._genes, hot=self._hot)
            noise = hyperparameters["noise"] * float(np.mean(np.diag(matrix)))
            self._computed[key] = -Posterior(Factor(matrix, noise), y).profile_log_likelihood - slope
        return self._computed[key]

    def _warp(self, offset: float) -> tuple[np.ndarray, np.ndarray, float]:
        if offset not in self._warped:
            warp = Warp(self._losses, offset)
            y = warp.do(self._losses)
            self._warped[offset] = y, main_effects(self._genes, y, self._sizes), warp.slope(self._losses)
        return self._warped[offset]


def _beside(values: Sequence[float], value: float) -> tuple[float, ...]:
    """The value before and the value after, where there are any."""
    at = values.index(value)
    return (*values[max(at - 1, 0) : at], *values[at + 1 : at + 2])


def main_effects(genes: Genes, y: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """[gene, choice]: what a choice does on average, by ridge; partly shared by genes of as many choices."""
    width = int(sizes.max())
    hot = one_hot(genes, width)
    hot -= hot.mean(axis=0)
    own = hot.reshape(len(genes), len(sizes), width)
    groups = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    shared = [own[:, mine].sum(axis=1) for mine in groups]
    gram = sum((part @ part.T for part in shared), OWN**2 * (hot @ hot.T))
    ridge = 0.1 * float(np.trace(gram)) / len(y) + 1e-9
    gram[np.diag_indices(len(y))] += ridge
    alpha = np.linalg.solve(gram, y - y.mean())
    effects = OWN**2 * (alpha @ hot).reshape(len(sizes), width)
    for mine, part in zip(groups, shared, strict=True):
        effects[mine] += alpha @ part
    return np.asarray(effects)


class WarpedNormal:
    """One loss of some candidates as a random variable: normal after a warp."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray, warp: Warp) -> None:
        self.mean, self.deviation, self.warp = mean, deviation, warp

    @classmethod
    def exact(cls, losses: np.ndarray) -> WarpedNormal:
        """A loss that is known."""
        return cls(losses, np.zeros(len(losses)), Warp.none())

    def take(self, at: np.ndarray | slice) -> WarpedNormal:
        """Of some of the candidates."""
        return WarpedNormal(self.mean[at], self.deviation[at], self.warp)

    def at(self, deviations: np.ndarray | float) -> np.ndarray:
        """The loss so many deviations from the mean."""
        return self.warp.undo(self.mean + deviations * self.deviation)

    def probability_below(self, limit: float) -> np.ndarray:
        """Probability that the loss keeps a limit."""
        from scipy.special import ndtr

        gap = self.warp.do(np.array([limit]))[0] - self.mean
        return np.asarray(np.where(self.deviation > 0, ndtr(gap / np.maximum(self.deviation, 1e-12)), gap >= 0))

    def expected_improvement(self, best: float) -> np.ndarray:
        """Expected improvement on the best (Jones, Schonlau and Welch 1998), in warped losses."""
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

    def __init__(self, hyperparameters: Mapping[str, float], effects: np.ndarray) -> None:
        self._effects, self._linear = effects, hyperparameters["linear"]
        usual = float(np.sqrt(np.mean(effects**2))) or 1.0
        gap = (effects[:, :, None] - effects[:, None]) / (hyperparameters["length"] * usual)
        alike = hyperparameters["alike"] * np.exp(-gap * gap / 2)
        alike[:, np.arange(effects.shape[1]), np.arange(effects.shape[1])] = 1.0
        self._logs = np.log(1 - (1 - np.exp(-hyperparameters["depth"])) * (1 - alike))
        """[gene, choice, choice]."""
        self._genes = np.arange(len(effects))

    def __call__(
        self, first: Genes, second: Genes, dtype: type[np.floating] = np.float64, hot: np.ndarray | None = None
    ) -> np.ndarray:
        """Of all pairs; `hot` is one_hot(first), where it is there already."""
        # Row (gene, choice) of `across`: what that choice contributes to the logarithm, for every second architecture.
        logs = self._logs.astype(dtype)
        across = logs[self._genes[:, None], :, second.T].transpose(0, 2, 1).reshape(-1, len(second))
        covariance = (one_hot(first, self._logs.shape[1], dtype) if hot is None else hot) @ across
        np.exp(covariance, out=covariance)
        if self._linear:
            covariance += np.outer(self._linear * self.sums(first).astype(dtype), self.sums(second).astype(dtype))
        return np.asarray(covariance)

    def row(self, one: Genes, places: np.ndarray, its_sum: float, sums: np.ndarray) -> np.ndarray:
        """Of one architecture with others, given as places (gene * width + choice) and their sums of effects."""
        logs = self._logs[self._genes, one].astype(np.float32).ravel()
        covariance = np.exp(logs[places].sum(axis=1))
        return np.asarray(covariance + (self._linear * its_sum) * sums if self._linear else covariance)

    def own(self, genes: Genes) -> np.ndarray:
        """Of each with itself."""
        return np.asarray(1 + self._linear * self.sums(genes) ** 2)

    def sums(self, genes: Genes) -> np.ndarray:
        """Sum of main effects."""
        return np.asarray(self._effects[self._genes, genes].sum(axis=1))


def one_hot(genes: Genes, width: int, dtype: type[np.floating] = np.float64) -> np.ndarray:
    """[n, genes * width]."""
    return np.asarray((genes[:, :, None] == np.arange(width)).reshape(len(genes), -1).astype(dtype))
