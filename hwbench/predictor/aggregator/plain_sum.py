"""Plain table sum: network = sum of rows, nothing fitted.

Holds where a runtime runs ops one after the other and none finds another's data in the cache, as instruction counts do.
The additivity test takes it where nothing fitted is really better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwbench.network.graph import Workload
from hwbench.predictor.aggregator.base import TableSum


class PlainSum(TableSum):
    """Rows of a table, summed."""

    def fit(self, rows_ms: Mapping[str, float], workloads: Sequence[Workload], measured_ms: np.ndarray) -> None:
        """Takes the rows; measured networks only judge it."""
        self._rows_ms = dict(rows_ms)
        self.constant_ms, self._coefficients = 0.0, {"rows_ms": 1.0}
