"""LINAS (Cummings et al. 2022): predictor-guided rounds.

1 random architectures are evaluated; 2 a predictor per objective is fitted to all of them; 3 NSGA-II searches on the
predictors; 4 the best new ones are evaluated; then 2 again. `linas-ridge` fits ridge regressions to one-hot genes,
`linas-svr` support vector machines, `linas-stacked` a mixture of both weighted by their errors on left-out rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwbench.core import pareto, registry
from hwbench.core.command import extra, hint
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem, Values
from hwbench.optimize.strategy.base import Archive, Strategy
from hwbench.optimize.variation import Seen, sample_new

VARIANTS = {"ridge": {"model": "ridge"}, "svr": {"model": "svr"}, "stacked": {"model": "stacked"}}
INNER, GENERATION = 500, 50
"""Architectures the inner search scores by prediction, per round and per generation."""
FOLDS, WEIGHED = 4, 200
"""Folds by which predictors are weighted, and rows at most."""
PENALTIES = 10.0 ** np.arange(-2, 4)
Model = Callable[[np.ndarray], np.ndarray]


class Linas:
    """Rounds of predicted searches."""

    name: str

    def __init__(self, problem: Problem, rng: np.random.Generator, model: str, start: int = 30, batch: int = 10) -> None:
        if start < 2 * FOLDS or batch < 1:
            raise UsageError(f"linas: start must be at least {2 * FOLDS} and batch at least 1, got {start} and {batch}.")
        self._problem, self._rng, self._seen = problem, rng, Seen()
        self._archive, self._start, self._batch = Archive(problem), start, batch
        self._fit = {"ridge": _ridge, "svr": _svr, "stacked": _stacked}[model]
        if model != "ridge":
            _machine()  # missing packages are said before anything is paid for
        self._waiting = np.empty((0, len(problem.genes)), np.uint8)

    def ask(self, n: int) -> Genes:
        """Random ones first, then the rest of the present round, then the next round."""
        missing = self._start - len(self._seen)
        if missing > 0 or self._archive.evaluated.sum() < 2 * FOLDS:
            return sample_new(self._problem, min(n, max(missing, 1)), self._rng, self._seen)
        self._waiting = self._waiting[self._seen.unknown(self._waiting)]
        if not len(self._waiting):
            # A twentieth more teaches a predictor little: fitting anew more often would only cost time.
            self._waiting = self._round(max(self._batch, n, len(self._archive) // 20))
        new, self._waiting = self._seen.new(self._waiting[:n]), self._waiting[n:]
        return new if len(new) else sample_new(self._problem, n, self._rng, self._seen)

    def tell(self, genes: Genes, values: Values) -> None:
        """More to fit to."""
        self._archive.add(genes, values)
        self._seen.new(self._problem.canonical(genes))

    def _round(self, n: int) -> Genes:
        """What an inner search finds best by prediction, of what was not asked yet."""
        predicted = {name: self._predictor(name) for name in self._problem.names}
        made = f"nsga2:population={GENERATION}"
        inner: Strategy = registry.make("strategy", made, problem=self._problem, rng=self._rng)
        asked, losses, violation = [], [], []
        inner.tell(self._archive.genes, {name: self._archive.value(name) for name in self._problem.names})
        for _ in range(INNER // GENERATION):
            genes = inner.ask(GENERATION)
            if not len(genes):
                break
            values = {name: predict(genes) for name, predict in predicted.items()}
            inner.tell(genes, values)
            asked.append(genes)
            losses.append(self._problem.losses(values))
            violation.append(self._problem.violation(values))
        if not asked:
            return np.empty((0, len(self._problem.genes)), np.uint8)
        genes = np.concatenate(asked)
        order = pareto.order(np.concatenate(losses), np.concatenate(violation))
        return np.asarray(genes[order][self._seen.unknown(genes[order])][:n])

    def _predictor(self, name: str) -> Callable[[Genes], np.ndarray]:
        if name in self._problem.known:
            return self._problem.known[name]
        valid = self._archive.evaluated
        x, y = one_hot(self._problem, self._archive.genes[valid]), self._archive.value(name)[valid]
        fitted = self._fit(x, y)
        # A predictor must not promise more than was ever seen: far beyond, it is only extrapolating.
        low, high = y.min() - np.ptp(y) / 4, y.max() + np.ptp(y) / 4
        return lambda genes: np.clip(fitted(one_hot(self._problem, genes)), low, high)


def one_hot(problem: Problem, genes: Genes) -> np.ndarray:
    """One column per choice of every gene."""
    return np.concatenate([genes[:, [g]] == np.arange(size) for g, (_, size) in enumerate(problem.genes)], axis=1).astype(float)


def _ridge(x: np.ndarray, y: np.ndarray) -> Model:
    """Penalty by generalised cross-validation."""
    centre, middle = x.mean(axis=0), y.mean()
    u, s, vt = np.linalg.svd(x - centre, full_matrices=False)
    z = u.T @ (y - middle)
    errors = []
    for penalty in PENALTIES:
        shrink = s**2 / (s**2 + penalty)
        left = (y - middle) - u @ (shrink * z)
        errors.append((float(left @ left) / max(len(y) - 1 - shrink.sum(), 1e-3) ** 2, penalty))
    penalty = min(errors)[1]
    weights = vt.T @ (s / (s**2 + penalty) * z)
    return lambda new: (new - centre) @ weights + middle


def _svr(x: np.ndarray, y: np.ndarray) -> Model:
    middle, spread = y.mean(), y.std() or 1.0
    width = 1 / (x.shape[1] * float(x.var()))  # scikit-learn's own default
    fitted = _machine()(C=10.0, epsilon=0.01, gamma=width, tol=0.01).fit(x, (y - middle) / spread)
    vectors, weights, level = fitted.support_vectors_, fitted.dual_coef_[0], fitted.intercept_[0]
    own = (vectors * vectors).sum(axis=1)

    def predict(new: np.ndarray) -> np.ndarray:
        """As `fitted.predict`, in a fifth of its time."""
        distance = own + (new * new).sum(axis=1)[:, None] - 2 * new @ vectors.T
        return np.asarray((np.exp(-width * distance) @ weights + level) * spread + middle)

    return predict


def _machine() -> Any:
    """scikit-learn's support vector regression."""
    try:
        from sklearn.svm import SVR
    except ImportError:
        raise UsageError(f"linas-svr and linas-stacked need scikit-learn. {hint(extra('peers'))}") from None
    return SVR


def _stacked(x: np.ndarray, y: np.ndarray) -> Model:
    """Both, weighted to be best on rows left out in turn; a few of many rows are enough to find one weight."""
    makers = (_ridge, _svr)
    few = np.unique(np.linspace(0, len(y) - 1, WEIGHED).astype(int))
    fold = np.arange(len(few)) % FOLDS
    left_out = np.empty((len(few), len(makers)))
    for at in range(FOLDS):
        fitted, out = few[fold != at], few[fold == at]
        for column, make in enumerate(makers):
            left_out[fold == at, column] = make(x[fitted], y[fitted])(x[out])
    first, second = (left_out - y[few, None]).T
    gap = first - second
    share = float(np.clip(-(gap @ second) / (gap @ gap or 1.0), 0.0, 1.0))
    models = [make(x, y) for make in makers]
    return lambda new: share * models[0](new) + (1 - share) * models[1](new)
