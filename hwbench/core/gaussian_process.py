"""The posterior of a Gaussian process: one place for the linear algebra; kernels, priors and units stay with their users.

    f ~ N(0, K),   y = f + noise,   K + noise = L L'
    weights            (K + noise)^-1 y
    mean at new points k' weights;   variance  k(x, x) - |L^-1 k|^2
    log likelihood     -1/2 y' weights - sum log diag L           (the constant -n/2 log 2 pi is left out everywhere)

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006: algorithm 2.1, equations 5.9 (gradient) and 5.10-5.12
(leave-one-out).

Why our own and not scikit-learn's: a search conditions its model hundreds of times at about a millisecond each, several targets
share one factor, rows differ in noise, hyperparameters have priors, and a seed must replay to the last bit.
tests/core/test_gaussian_process.py holds mean, deviation, likelihood and gradient against scikit-learn's to 1e-8.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

JITTERS = (0.0, 1e-10, 1e-8, 1e-6)
"""Added to the diagonal, relative to its mean, until the Cholesky factor exists. Nothing is added where it exists at once."""
LEAST_SCALE = 1e-12
"""Least mean square of whitened observations: where all are 0, the logarithm of their size is not."""


class Factor:
    """The Cholesky factor of a covariance with its noise: what does not depend on the observed values."""

    def __init__(self, covariance: np.ndarray, noise: np.ndarray | float) -> None:
        """Factorises.

        Args:
            covariance: [n, n], of the points observed.
            noise: Variance of an observation beside it: one for all, or [n].

        Raises:
            numpy.linalg.LinAlgError: it is no covariance: not positive definite by far, or not finite.
        """
        matrix = np.array(covariance, float)
        matrix[np.diag_indices(len(matrix))] += noise
        self.lower, self.jitter = _cholesky(matrix)

    @classmethod
    def restored(cls, lower: np.ndarray) -> Factor:
        """Of a lower Cholesky factor that was stored."""
        made = cls.__new__(cls)
        made.lower, made.jitter = lower, 0.0
        return made

    def first(self, n: int) -> Factor:
        """The factor of the first n points alone."""
        return Factor.restored(np.ascontiguousarray(self.lower[:n, :n]))

    def whiten(self, right: np.ndarray) -> np.ndarray:
        """L^-1 right, in the precision of `right`."""
        from scipy.linalg import solve_triangular

        lower = self.lower.astype(right.dtype, copy=False)
        return np.asarray(solve_triangular(lower, right, lower=True, check_finite=False))

    def solve(self, right: np.ndarray) -> np.ndarray:
        """(K + noise)^-1 right."""
        from scipy.linalg import cho_solve

        return np.asarray(cho_solve((self.lower, True), right, check_finite=False))

    @cached_property
    def inverse(self) -> np.ndarray:
        """(K + noise)^-1."""
        return self.solve(np.eye(len(self.lower)))

    @cached_property
    def half_log_determinant(self) -> float:
        """Sum of the logarithms of the diagonal of L."""
        return float(np.log(np.diag(self.lower)).sum())

    def variance(self, prior: np.ndarray | float, across: np.ndarray) -> np.ndarray:
        """Posterior variances at new points; a little below 0 where rounding says so.

        Args:
            prior: Their variance before anything is observed.
            across: [n, points]: covariance of what is observed with them.
        """
        return np.asarray(prior - np.square(self.whiten(across)).sum(axis=0))

    def covariance(self, prior: np.ndarray, across: np.ndarray) -> np.ndarray:
        """Posterior covariance [points, points] at new points; arguments as in `variance`."""
        white = self.whiten(across)
        return np.asarray(prior - white.T @ white)


class Posterior:
    """A Gaussian process after observing values at the points of a factor."""

    def __init__(self, factor: Factor, observed: np.ndarray) -> None:
        """Conditions on `observed` [n], or on several columns of observations [n, columns] at once."""
        self.factor, self.observed = factor, observed

    @cached_property
    def white(self) -> np.ndarray:
        """L^-1 y: observations as independent standard normals."""
        return self.factor.whiten(self.observed)

    @cached_property
    def weights(self) -> np.ndarray:
        """(K + noise)^-1 y."""
        return self.factor.solve(self.observed)

    def mean(self, across: np.ndarray) -> np.ndarray:
        """Posterior mean at new points whose covariance with the observed ones is `across` [n, points]."""
        return np.asarray(across.T @ self.weights)

    @property
    def log_likelihood(self) -> np.ndarray:
        """Of the observations, or of every column of them."""
        y, weights = self.observed, self.weights
        fit = y @ weights if y.ndim == 1 else (y * weights).sum(axis=0)
        return np.asarray(-0.5 * fit - self.factor.half_log_determinant)

    @property
    def scale(self) -> float:
        """The factor of covariance and noise under which the observations are most likely."""
        return max(float(self.white @ self.white) / len(self.observed), LEAST_SCALE)

    @property
    def profile_log_likelihood(self) -> float:
        """Log likelihood at the most likely `scale`, but for a constant."""
        return -(self.factor.half_log_determinant + len(self.observed) / 2 * float(np.log(self.scale)))

    @property
    def likelihood_slope(self) -> np.ndarray:
        """[n, n]: derivative of the log likelihood by each entry of the covariance.

        Its sum over `slope * dK` is the derivative by whatever parameter K changes with as dK.
        """
        return np.asarray(0.5 * (np.outer(self.weights, self.weights) - self.factor.inverse))

    def leave_one_out(self) -> tuple[np.ndarray, np.ndarray]:
        """(observed - predicted, variance of that difference) of every observation, predicted from all others."""
        precision = np.diag(self.factor.inverse)
        return (self.weights.T / precision).T, 1 / precision


def _cholesky(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """(lower factor, what was added to the diagonal)."""
    size = float(np.mean(np.diag(matrix)))
    for jitter in JITTERS if np.isfinite(matrix).all() else ():
        try:
            return np.linalg.cholesky(matrix + jitter * size * np.eye(len(matrix)) if jitter else matrix), jitter * size
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError(f"No covariance: {matrix.shape} with a mean variance of {size:.4g} is not positive definite.")
