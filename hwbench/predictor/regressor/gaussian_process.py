"""A Gaussian process over what the sum of parts leaves unexplained; its posterior deviation is the doubt (relative).

log(target / additive) = linear in the logarithms + a smooth function (Matern 5/2, one length per feature) + noise.
Lengths and sizes maximise the marginal likelihood of a random subset; rows with large errors get more noise (Huber).
Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.gaussian_process import Factor, Posterior

TUNED_ROWS, MAX_ROWS, DOUBT_ROWS = 256, 600, 256
"""Rows that choose lengths and sizes; that predictions rest on; that the doubt rests on (it costs the square)."""
HUBER, ROUNDS, STEPS = 1.0, 2, 40
CHUNK = 4096
ARRAYS = ("centre", "scale", "middle", "width", "logged", "parameters", "points", "left", "row")


class GaussianProcess:
    """Sum of parts x exp(Gaussian process)."""

    name: str

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.base = registry.make("regressor", "additive", seed=seed)

    def fit(self, x: np.ndarray, y: np.ndarray, rising: Sequence[bool] = ()) -> None:
        """Learns from at most MAX_ROWS random rows; `rising` is not promised."""
        self.base.fit(x, y)
        chosen = np.random.default_rng(self.seed).permutation(len(y))[:MAX_ROWS]
        x, left = x[chosen], np.log(y[chosen] / self.base.predict(x[chosen])[0])
        self.logged = x.min(axis=0) > 0
        self.centre, self.scale = _standard(x)
        self.middle, self.width = _standard(_logs(x, self.logged))
        self.points, self.left, self.row = x, left, np.ones(len(x))
        spread = max(1.4826 * float(np.median(np.abs(left - np.median(left)))), 1e-6)
        self.row = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(left - np.median(left)), 1e-12))
        self.parameters = _tuned(*self._views(x[:TUNED_ROWS]), left[:TUNED_ROWS], self.row[:TUNED_ROWS], spread)
        for _ in range(ROUNDS):
            self._condition()
            errors = np.abs(self.posterior.leave_one_out()[0])
            spread = max(1.4826 * float(np.median(errors)), 1e-9)
            self.row = np.minimum(1.0, HUBER * spread / np.maximum(errors, 1e-12))
        self._condition()

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Doubt: posterior deviation with the noise of a new measurement."""
        prediction, doubt = self.base.predict(x)
        for start in range(0, len(x), CHUNK):
            part = slice(start, start + CHUNK)
            smooth, linear = self._views(x[part])
            across = _kernel(self.parameters, smooth, linear, *self.seen)
            prediction[part] *= np.exp(np.clip(self.posterior.mean(across.T), -3, 3))
            prior = np.exp(self.parameters[0]) + np.exp(self.parameters[1]) * (1 + np.square(linear).sum(axis=1))
            variance = self.corner.variance(prior, across[:, : len(self.corner.lower)].T)
            doubt[part] = np.sqrt(np.maximum(variance, 0.0) + np.exp(self.parameters[2]))
        return prediction, doubt

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Rows and lengths; the matrices are made again from them."""
        values, arrays = self.base.state()
        return {"base": values}, {
            **{f"base_{name}": each for name, each in arrays.items()},
            **{name: getattr(self, name) for name in ARRAYS},
        }

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes up a stored state."""
        self.base.restore(values["base"], {n.removeprefix("base_"): a for n, a in arrays.items() if n.startswith("base_")})
        for name in ARRAYS:
            setattr(self, name, arrays[name])
        self._condition()

    def _views(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (x - self.centre) / self.scale, (_logs(x, self.logged) - self.middle) / self.width

    def _condition(self) -> None:
        """Everything prediction needs, from the rows, their weights and the parameters."""
        self.seen = self._views(self.points)
        noise = np.exp(self.parameters[2]) / self.row
        factor = Factor(_kernel(self.parameters, *self.seen, *self.seen), noise + 1e-9)
        self.posterior, self.corner = Posterior(factor, self.left), factor.first(DOUBT_ROWS)


def _logs(x: np.ndarray, logged: np.ndarray) -> np.ndarray:
    return np.where(logged, np.log(np.where(logged, np.maximum(x, 1e-300), 1.0)), x)


def _standard(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    spread = x.std(axis=0)
    return x.mean(axis=0), np.where(spread > 1e-12, spread, 1.0)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)[None, :] - 2 * a @ b.T
    return np.asarray(np.sqrt(5 * np.maximum(squares, 0.0)))


def _kernel(
    parameters: np.ndarray, smooth: np.ndarray, linear: np.ndarray, points: np.ndarray, lines: np.ndarray
) -> np.ndarray:
    """Covariance of two sets of rows; parameters are logs of: smooth size, linear size, noise, one length per feature."""
    lengths = np.exp(parameters[3:])
    d = _distances(smooth / lengths, points / lengths)
    covariance = np.exp(parameters[0]) * (1 + d + d * d / 3) * np.exp(-d) + np.exp(parameters[1]) * (1 + linear @ lines.T)
    return np.asarray(covariance)


def _tuned(smooth: np.ndarray, linear: np.ndarray, left: np.ndarray, row: np.ndarray, spread: float) -> np.ndarray:
    """Parameters of the largest marginal likelihood, near ones that suit standardised features (weak prior)."""
    from scipy.optimize import minimize

    features, inner = smooth.shape[1], 1 + linear @ linear.T
    apart = [np.square(smooth[:, i][:, None] - smooth[:, i][None, :]) for i in range(features)]
    start = np.concatenate([np.log([spread**2 / 2, spread**2 / (10 * max(1, features)), spread**2]), np.full(features, 1.0)])

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        size, line, noise = np.exp(parameters[:3])
        lengths = np.exp(parameters[3:])
        d = _distances(smooth / lengths, smooth / lengths)
        fading = np.exp(-d)
        matern = size * (1 + d + d * d / 3) * fading
        posterior = Posterior(Factor(matern + line * inner, noise / row + 1e-9), left)
        slope = posterior.likelihood_slope
        steep = size * 5 / 3 * (1 + d) * fading * slope
        gradient = [np.sum(slope * matern), line * np.sum(slope * inner), noise * np.sum(np.diag(slope) / row)]
        gradient += [np.sum(steep * each) / length**2 for each, length in zip(apart, lengths, strict=True)]
        away = parameters - start
        return float(-posterior.log_likelihood + 0.5 * away @ away / 4), -np.array(gradient) + away / 4

    bounds = [(s - 8, s + 8) for s in start[:3]] + [(-1.5, 5.0)] * features
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
    return np.asarray(optimum.x)
