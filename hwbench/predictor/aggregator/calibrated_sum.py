"""Calibrated table sum: network = constant + scale * sum of rows (+ terms that earn their place).

A block timed alone finds its weights in the cache and pays one call; in a network neither holds. The scale
carries the first, the constant the second. A further term is taken only if it lowers the leave-one-out error
on the calibration networks by at least a tenth. Fitted to relative errors.

Rows make networks slower, and a constant is small beside them. A fit that says otherwise (few networks, much noise) would
foretell negative latencies: then there is no constant and no further term, only the scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwbench.network.graph import Workload
from hwbench.predictor.aggregator.base import TableSum, require_networks, terms_of, weighted_fit

CANDIDATES = ("weights_mb", "activations_mb", "nodes")
"""Terms beyond the rows: parameters touched, tensors passed between ops, number of ops."""
MUST_GAIN = 0.9
MOST_TAKEN = 0.5
"""Share of the smallest network that a negative constant may take away."""


def leave_one_out(matrix: np.ndarray, measured: np.ndarray) -> float:
    """Mean absolute relative error, each network predicted by a fit on the others (closed form)."""
    weighted = matrix / measured[:, None]
    hat = weighted @ np.linalg.pinv(weighted)
    residual = hat @ np.ones(len(measured)) - 1.0
    return float(np.abs(residual / np.maximum(1.0 - np.diag(hat), 1e-9)).mean())


class CalibratedSum(TableSum):
    """Rows of a table, summed and calibrated."""

    def fit(self, rows_ms: Mapping[str, float], workloads: Sequence[Workload], measured_ms: np.ndarray) -> None:
        """Constant, scale and whatever further terms earn their place."""
        require_networks(workloads)
        self._rows_ms = dict(rows_ms)
        summed: list[dict[str, float]] = []
        for workload in workloads:
            parts = [(n, terms_of(s, rows_ms)) for s, n in workload.counts().items()]
            summed.append({term: sum(n * p[term] for n, p in parts) for term in ("rows_ms", *CANDIDATES)})
        columns = {term: np.array([sums[term] for sums in summed], float) for term in ("rows_ms", *CANDIDATES)}
        chosen = ["rows_ms"]

        def matrix(terms: Sequence[str]) -> np.ndarray:
            return np.column_stack([np.ones(len(measured_ms)), *(columns[t] for t in terms)])

        best = leave_one_out(matrix(chosen), measured_ms)
        while len(chosen) <= len(CANDIDATES) and len(measured_ms) > 2 * (len(chosen) + 2):
            errors = {t: leave_one_out(matrix([*chosen, t]), measured_ms) for t in CANDIDATES if t not in chosen}
            term = min(errors, key=lambda t: errors[t])
            if errors[term] > MUST_GAIN * best:
                break
            chosen.append(term)
            best = errors[term]
        solution = weighted_fit(matrix(chosen), measured_ms)
        ops_ms = matrix(chosen)[:, 1:] @ solution[1:]
        if solution[1] <= 0 or solution[0] < -MOST_TAKEN * ops_ms.min():
            chosen, solution = ["rows_ms"], np.append(0.0, weighted_fit(columns["rows_ms"][:, None], measured_ms))
        self.constant_ms = float(solution[0])
        self._coefficients = {term: float(c) for term, c in zip(chosen, solution[1:], strict=True)}
