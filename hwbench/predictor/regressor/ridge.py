"""Ridge on the log of the target: features, their logarithms and pairwise products, shrunk as far as the rows demand.

Leave-one-out errors have a closed form, so the penalty (and how much harder products are shrunk than features) is chosen
on rows that did not take part. Rows with large errors are weighted down (Huber).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.predictor.regressor.base import thinned

PAIRED = 24
"""Features (those that follow the target most) whose products are offered."""
MAX_ROWS = 10_000
PENALTIES = 10.0 ** np.arange(-6, 1.01, 0.5)
PRODUCTS = (0.0, 0.1, 0.3, 1.0)
"""Scales of the products against the features' one: smaller is shrunk harder, 0 leaves them out."""
HUBER, ROUNDS = 1.0, 4
ARRAYS = ("logged", "pairs", "centre", "scale", "weights", "inverse")


class Ridge:
    """Log-linear with interactions."""

    name: str

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, x: np.ndarray, y: np.ndarray, rising: Sequence[bool] = ()) -> None:
        """Learns the weights; `rising` is not promised."""
        x, y = thinned(x, y, MAX_ROWS, self.seed)
        target = np.log(y)
        low, high = x.min(axis=0), x.max(axis=0)
        self.logged = np.flatnonzero((low > 0) & (high > low))
        self.pairs = _pairs(x, target)
        self.limits = float(target.min()), float(target.max())
        plain = self._columns(x)
        self.centre = plain.mean(axis=0)
        spread = plain.std(axis=0)
        usable = np.where(spread > 1e-9 * (1 + np.abs(self.centre)), 1 / np.where(spread > 0, spread, 1.0), 0.0)
        products = len(plain.T) - len(self.pairs)
        fits = []
        for harder in PRODUCTS if len(self.pairs) else (1.0,):
            scale = usable * np.where(np.arange(len(usable)) < products, 1.0, harder)
            fits.append((*_robust((plain - self.centre) * scale, target), scale))
        _, self.weights, self.inverse, self.spread, self.scale = min(fits, key=lambda each: each[0])

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Doubt is the usual error, wider for rows unlike those fitted."""
        z = np.column_stack([np.ones(len(x)), (self._columns(x) - self.centre) * self.scale])
        # A polynomial of the log runs away fast outside of what was seen: stop at a factor of ten.
        inside = np.clip(z @ self.weights, self.limits[0] - np.log(10), self.limits[1] + np.log(10))
        leverage = np.einsum("ij,ij->i", z @ self.inverse, z)
        return np.exp(inside), self.spread * np.sqrt(1 + np.maximum(leverage, 0.0))

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Weights and what they belong to."""
        return {"spread": self.spread, "limits": list(self.limits)}, {name: getattr(self, name) for name in ARRAYS}

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes up a stored state."""
        self.spread, self.limits = values["spread"], (values["limits"][0], values["limits"][1])
        for name in ARRAYS:
            setattr(self, name, arrays[name])

    def _columns(self, x: np.ndarray) -> np.ndarray:
        """Features, logarithms (of what was positive when fitted; the least positive number otherwise), products."""
        logs = np.log(np.maximum(x[:, self.logged], 1e-300))
        return np.column_stack([x, logs, x[:, self.pairs[:, 0]] * x[:, self.pairs[:, 1]]])


def _pairs(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Pairs of the varying features that follow the target most, squares included where they are more than the feature."""
    varying = np.flatnonzero(np.ptp(x, axis=0) > 0)
    centred = x[:, varying] - x[:, varying].mean(axis=0)
    follows = np.abs(centred.T @ (target - target.mean())) / np.linalg.norm(centred, axis=0)
    chosen = np.sort(varying[np.argsort(-follows, kind="stable")][:PAIRED])
    first, second = np.triu_indices(len(chosen))
    return np.column_stack([chosen[first], chosen[second]]).reshape(-1, 2)


def _robust(z: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
    """(leave-one-out error, weights with the constant first, inverse for leverages, usual error)."""
    n, row = len(z), np.ones(len(z))
    for _ in range(ROUNDS):
        share = row / row.sum()
        middle, level = share @ z, share @ target
        centred, left = z - middle, target - level
        values, axes = np.linalg.eigh((centred * row[:, None]).T @ centred)
        turned = centred @ axes
        aims = turned.T @ (row * left)
        fits = []
        for penalty in PENALTIES * n:
            shrunk = 1 / (np.maximum(values, 0.0) + penalty)
            leverage = row * (1 / row.sum() + np.square(turned) @ shrunk)
            errors = np.abs(left - turned @ (shrunk * aims)) / np.maximum(1 - leverage, 1e-3)
            fits.append((float(errors.mean()), shrunk, errors))
        error, shrunk, errors = min(fits, key=lambda each: each[0])
        spread = max(1.4826 * float(np.median(errors)), 1e-9)
        weighted_by = row
        row = np.minimum(1.0, HUBER * spread / np.maximum(errors, 1e-12))
    slopes = axes @ (shrunk * aims)
    within = (axes * shrunk) @ axes.T
    inverse = np.zeros((len(slopes) + 1, len(slopes) + 1))
    inverse[1:, 1:] = within
    inverse[0, 1:] = inverse[1:, 0] = -within @ middle
    inverse[0, 0] = 1 / weighted_by.sum() + middle @ within @ middle
    return error, np.concatenate([[level - middle @ slopes], slopes]), inverse, spread
