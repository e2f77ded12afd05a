"""Calibrated table sum: network = constant + scale * sum of rows (+ terms that earn their place).

A block timed alone finds its weights in the cache and pays one call; in a network neither holds. The scale
carries the first, the constant the second. A further term is taken only if it lowers the leave-one-out error
on the calibration networks by at least a tenth. Fitted to relative errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.errors import UsageError
from hwbench.network import OpSpec, Workload
from hwbench.op import base as ops
from hwbench.predictor.base import weighted_fit

CANDIDATES = ("weights_mb", "activations_mb", "nodes")
"""Terms beyond the rows: parameters touched, tensors passed between ops, number of ops."""
MUST_GAIN = 0.9


def terms_of(spec: OpSpec, rows_ms: Mapping[str, float]) -> dict[str, float]:
    """What one op contributes to each term; NaN for an op without a row."""
    inputs, outputs = ops.op_of(spec).signature(spec)
    passed = sum(int(np.prod(t.shape)) * ops.ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    return {
        "rows_ms": rows_ms.get(spec.key, float("nan")),
        "weights_mb": ops.op_of(spec).work(spec).parameters_read * 4 / 1e6,
        "activations_mb": passed / 1e6,
        "nodes": 1.0,
    }


def leave_one_out(matrix: np.ndarray, measured: np.ndarray) -> float:
    """Mean absolute relative error, each network predicted by a fit on the others (closed form)."""
    weighted = matrix / measured[:, None]
    hat = weighted @ np.linalg.pinv(weighted)
    residual = hat @ np.ones(len(measured)) - 1.0
    return float(np.abs(residual / np.maximum(1.0 - np.diag(hat), 1e-9)).mean())


class LutSum:
    """Rows of a table, summed and calibrated."""

    name: str

    def __init__(self) -> None:
        self.constant_ms = 0.0
        self._coefficients: dict[str, float] = {}
        self._rows_ms: dict[str, float] = {}

    def fit(self, rows_ms: Mapping[str, float], workloads: Sequence[Workload], measured_ms: np.ndarray) -> None:
        """Constant, scale and whatever further terms earn their place."""
        if len(workloads) < 4:
            raise UsageError(f"Calibration needs at least 4 measured networks, got {len(workloads)}.")
        self._rows_ms = dict(rows_ms)
        columns: dict[str, np.ndarray] = {}
        for term in ("rows_ms", *CANDIDATES):
            sums = [sum(n * terms_of(s, rows_ms)[term] for s, n in w.counts().items()) for w in workloads]
            columns[term] = np.array(sums, float)
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
        self.constant_ms = float(solution[0])
        self._coefficients = {term: float(c) for term, c in zip(chosen, solution[1:], strict=True)}

    def op_ms(self, specs: Sequence[OpSpec]) -> np.ndarray:
        """Scaled row plus the op's part of the further terms."""
        if not self._coefficients:
            raise UsageError("This predictor was not fitted yet. Run: hwbench fit --space SPACE")
        terms = [terms_of(spec, self._rows_ms) for spec in specs]
        return np.array([sum(c * term[name] for name, c in self._coefficients.items()) for term in terms], float)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Coefficients as values, the rows as arrays."""
        keys = sorted(self._rows_ms)
        arrays = {"op_key": np.array(keys), "row_ms": np.array([self._rows_ms[k] for k in keys], float)}
        return {"constant_ms": self.constant_ms, "coefficients": self._coefficients}, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of `state`."""
        self.constant_ms = float(values["constant_ms"])
        self._coefficients = {name: float(c) for name, c in values["coefficients"].items()}
        self._rows_ms = dict(zip(arrays["op_key"].tolist(), arrays["row_ms"].tolist(), strict=True))
