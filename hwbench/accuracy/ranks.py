"""Ranks: where a value stands among others, the smallest first; equal values share the mean of their ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class AmongThemselves:
    """Ranks within the very set that is scored, 1 to n: what rank-sum proxies are defined by."""

    def __call__(self, term: str, values: np.ndarray) -> np.ndarray:
        """Average ranks."""
        from scipy.stats import rankdata

        return np.asarray(rankdata(values), float)

    def size(self, values: np.ndarray) -> int:
        """Of the set."""
        return len(values)


class AmongSample:
    """Ranks among a fixed sample, so that a score does not depend on what is scored beside it.

    A member of the sample has its average rank there; between members ranks are interpolated; beyond them they go on in steps
    of the sample's mean distance, and below towards 0. So ranks rise with the value everywhere, and a search can tell networks
    apart that are better than all of the sample.

    Args:
        sample: Term -> its values in the sample.
    """

    def __init__(self, sample: Mapping[str, np.ndarray]) -> None:
        from scipy.stats import rankdata

        self._known = {}
        for term, values in sample.items():
            points, first = np.unique(values, return_index=True)
            self._known[term] = points, np.asarray(rankdata(values), float)[first]
        self._size = len(next(iter(sample.values())))

    def __call__(self, term: str, values: np.ndarray) -> np.ndarray:
        """Ranks of any values."""
        points, ranks = self._known[term]
        step = (points[-1] - points[0]) / (self._size - 1) if len(points) > 1 else max(abs(points[0]), 1.0)
        inside = np.interp(values, points, ranks)
        above, below = np.maximum(values - points[-1], 0) / step, np.maximum(points[0] - values, 0) / step
        return np.asarray(np.where(below > 0, inside / (1 + below), inside + above))

    def size(self, values: np.ndarray) -> int:
        """Of the sample."""
        return self._size


Ranks = AmongThemselves | AmongSample
