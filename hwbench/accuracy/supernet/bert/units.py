"""Scores of units: how important every head and every hidden channel of an encoder is.

How a mask of single weights becomes a width is not in the paper. READINGS are the ways: a unit is kept while its mean score,
its best weight (`any`) or its median weight (`half`) lies above the threshold. By `mean` what is kept are exactly the first
units of the reordered weights, which are ordered by their means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hwbench.space.encoder import Widths

READINGS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda scores: scores.mean(1),
    "any": lambda scores: scores.max(1),
    "half": lambda scores: np.median(scores, axis=1),
}
"""Scores (units, weights of each) -> the threshold up to which each unit is kept."""


@dataclass(frozen=True)
class UnitScores:
    """The importance of every unit, a row per layer."""

    heads: np.ndarray
    channels: np.ndarray

    @classmethod
    def even(cls, widths: Widths) -> UnitScores:
        """No importance: the n-th unit counts alike in every layer, earlier ones more: order stays, and widths are uniform."""
        falling = {name: [1 - np.arange(n) / n for n in getattr(widths, name)] for name in ("heads", "hidden")}
        return cls(np.stack(falling["heads"]), np.stack(falling["hidden"]))
