"""Cost as a sum of parts that can only add: a constant, the features and their products, each with a weight of at least 0.

Latency is made of work: layers x (calls + width x depth ...). Restricting the weights to what physics allows needs far
fewer measurements than a free fit, and the result rises in every feature. Weights fit relative errors with Huber's
loss (outliers count by size, not by square); non-negative least squares keeps only the terms that matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from hwbench.predictor.regressor.base import thinned

PAIRED, TRIPLED = 24, 10
"""Features (those that follow the target most) of which products of two and of three are offered."""
MAX_ROWS = 10_000
HUBER, ROUNDS = 0.5, 8
LEAST, SUREST = 0.1, 1e-3
"""No prediction below this share of the smallest target seen; no doubt below this."""


class Additive:
    """Sum of non-negative parts."""

    name: str

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, x: np.ndarray, y: np.ndarray, rising: Sequence[bool] = ()) -> None:
        """Learns the weights; rises in every feature whatever `rising` says."""
        x, y = thinned(x, y, MAX_ROWS, self.seed)
        self.offset = np.minimum(x.min(axis=0), 0.0)
        self.scale = np.maximum((x - self.offset).max(axis=0), 1e-12)
        unit = (x - self.offset) / self.scale
        terms = _terms(unit, y)
        weights, robust = _robust(_values(unit, terms), y)
        kept = np.flatnonzero(weights > 0)
        self.terms, self.weights = terms[kept], weights[kept]
        self.least = LEAST * float(y.min())
        relative = _values(unit, self.terms) / y[:, None]
        self.inverse = np.linalg.pinv((relative * robust[:, None]).T @ relative, hermitian=True)
        leverage = robust * np.einsum("ij,ij->i", relative @ self.inverse, relative)
        alone = np.abs(relative @ self.weights - 1) / np.maximum(1 - leverage, 0.05)  # errors with the row left out
        self.spread = max(1.4826 * float(np.median(alone)), SUREST)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sum; doubt is the usual error, wider for rows unlike those fitted."""
        parts = _values((x - self.offset) / self.scale, self.terms)
        prediction = np.maximum(parts @ self.weights, self.least)
        relative = parts / prediction[:, None]
        leverage = np.einsum("ij,ij->i", relative @ self.inverse, relative)
        return prediction, self.spread * np.sqrt(1 + np.maximum(leverage, 0.0))

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Weights and the terms they belong to (-1: no factor)."""
        return {"spread": self.spread, "least": self.least}, {
            name: getattr(self, name) for name in ("offset", "scale", "terms", "weights", "inverse")
        }

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes up a stored state."""
        self.spread, self.least = values["spread"], values["least"]
        for name in ("offset", "scale", "terms", "weights", "inverse"):
            setattr(self, name, arrays[name])


def _terms(unit: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Terms on offer as rows of three feature numbers, -1 where there is no factor; the first is the constant."""
    varying = np.flatnonzero(np.ptp(unit, axis=0) > 0)
    centred = unit[:, varying] - unit[:, varying].mean(axis=0)
    follows = np.abs(centred.T @ (y - y.mean())) / np.linalg.norm(centred, axis=0)
    order = varying[np.argsort(-follows, kind="stable")]
    terms: list[tuple[int, ...]] = [(), *((int(i),) for i in sorted(varying))]
    terms += combinations(sorted(int(i) for i in order[:PAIRED]), 2)
    terms += combinations(sorted(int(i) for i in order[:TRIPLED]), 3)
    return np.array([term + (-1,) * (3 - len(term)) for term in terms])


def _values(unit: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Every term of every row."""
    padded = np.column_stack([unit, np.ones(len(unit))])  # -1 is the last column: a factor of one
    return np.asarray(padded[:, terms[:, 0]] * padded[:, terms[:, 1]] * padded[:, terms[:, 2]])


def _robust(parts: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(weights, row weights of Huber's loss), by reweighting."""
    from scipy.optimize import nnls

    relative, ones, row = parts / y[:, None], np.ones(len(y)), np.ones(len(y))
    for _ in range(ROUNDS):
        # The triangle of a QR decomposition has the same least-squares problem with as many rows as terms.
        triangle = np.asarray(np.linalg.qr(np.column_stack([relative, ones]) * np.sqrt(row)[:, None], mode="r"))
        weights, _ = nnls(triangle[:, :-1], triangle[:, -1], maxiter=50 * parts.shape[1])
        errors = np.abs(relative @ weights - 1)
        spread = max(1.4826 * float(np.median(errors)), 1e-9)
        row = np.minimum(1.0, HUBER * spread / np.maximum(errors, 1e-12))
    return weights, row
