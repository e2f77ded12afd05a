"""What a regressor is: it learns a positive number (a latency) from rows of plain numbers.

Everything that predicts from features rests on it: ops of sizes never measured, tables of anyone's own
measurements. It is fitted to relative errors (log of the target), predicts the target itself and its own relative
doubt. State is JSON values and plain arrays, nothing that runs when loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np


class Regressor(Protocol):
    """The contract of a regressor."""

    name: str

    def fit(self, x: np.ndarray, y: np.ndarray, rising: Sequence[bool] = ()) -> None:
        """Learns positive y[n] from x[n, features].

        Args:
            x: Finite numbers, as they are: scaling, logarithms and interactions are the regressor's business.
            y: Positive targets.
            rising: For each feature whether the target can only rise with it (physics); () where unknown.
        """

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(prediction, relative doubt) of every row; the doubt orders rows, a conformal band gives it a meaning."""

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(values, arrays) from which `restore` makes the same regressor."""

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes up a stored state."""


def thinned(x: np.ndarray, y: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many rows, drawn at random; all of them in their order where there are no more."""
    if len(y) <= count:
        return x, y
    chosen = np.random.default_rng(seed).permutation(len(y))[:count]
    return x[chosen], y[chosen]
