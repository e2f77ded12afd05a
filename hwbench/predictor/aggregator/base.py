"""What an aggregator is: it learns from measured whole networks and tells what each op adds to a network.

Its answer for a workload is `constant_ms` plus the sum of `op_ms` over the workload's ops, so a search can
compile it to arrays. State is JSON values and plain arrays, nothing that runs when loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network import work
from hwbench.network.graph import Workload
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec

FILLED, SEPARATOR = "filled_key", ":"
"""The array that lists ops a model stands in for; what stands between a statistic and the name of its array."""


class Aggregator(Protocol):
    """The contract of an aggregator: from what ops cost to what their network costs."""

    name: str
    constant_ms: float
    """What a network costs beyond its ops."""

    def fit(self, rows_ms: Mapping[str, float], workloads: Sequence[Workload], measured_ms: np.ndarray) -> None:
        """Learns from op latencies (by key) and measured networks."""

    def op_ms(self, specs: Sequence[OpSpec]) -> np.ndarray:
        """What each op adds; NaN where the predictor does not know the op."""

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(values, arrays) from which `restore` makes the same predictor."""

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes up a stored state."""


def pack(states: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of every statistic's aggregator in one file: `name` where all have the same, else `statistic:name`.

    Raises:
        UsageError: an array's name has a colon, or is one a card keeps for itself.
    """
    found: dict[str, np.ndarray] = {}
    for statistic, arrays in states.items():
        for name, array in arrays.items():
            if SEPARATOR in name or name == FILLED:
                raise UsageError(f"An aggregator's state has an array '{name}'; use another name, without '{SEPARATOR}'.")
            shared = all(name in other and _same(array, other[name]) for other in states.values())
            found[name if shared else f"{statistic}{SEPARATOR}{name}"] = array
    return found


def unpack(arrays: Mapping[str, np.ndarray], statistic: str) -> dict[str, np.ndarray]:
    """The arrays of one statistic's aggregator; files of version 0.1 have one set for all."""
    own = f"{statistic}{SEPARATOR}"
    shared = {name: array for name, array in arrays.items() if SEPARATOR not in name and name != FILLED}
    return shared | {name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def sum_ops(predictor: Aggregator, workload: Workload) -> float:
    """The predictor's answer for one workload."""
    counts = workload.counts()
    return float(predictor.constant_ms + predictor.op_ms(list(counts)) @ np.array(list(counts.values()), float))


def weighted_fit(matrix: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Least squares of the relative error."""
    weights = 1.0 / measured
    return np.asarray(np.linalg.lstsq(matrix * weights[:, None], measured * weights, rcond=None)[0])


def require_networks(workloads: Sequence[Workload]) -> None:
    """Raises below the four networks any calibration needs."""
    if len(workloads) < 4:
        raise UsageError(f"Calibration needs at least 4 measured networks, got {len(workloads)}.")


@lru_cache(maxsize=None)
def _size_terms(spec: OpSpec) -> tuple[float, float]:
    """(weights touched, tensors passed) in MB."""
    inputs, outputs = ops.op_of(spec).signature(spec)
    passed = sum(math.prod(t.shape) * work.ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    return ops.op_of(spec).work(spec).parameters_read * 4 / 1e6, passed / 1e6


SUMMED = {"rows_ms", "weights_mb", "activations_mb", "nodes"}
"""The terms of a table sum."""


def terms_of(spec: OpSpec, rows_ms: Mapping[str, float]) -> dict[str, float]:
    """What one op contributes to each term of a table sum; NaN for an op without a row."""
    weights_mb, activations_mb = _size_terms(spec)
    row_ms = rows_ms.get(spec.key, float("nan"))
    return {"rows_ms": row_ms, "weights_mb": weights_mb, "activations_mb": activations_mb, "nodes": 1.0}


class TableSum:
    """constant + sum over ops of coefficient x term, with the rows it rests on; `fit` is a subclass's."""

    name: str

    def __init__(self) -> None:
        self.constant_ms = 0.0
        self._coefficients: dict[str, float] = {}
        self._rows_ms: dict[str, float] = {}

    def op_ms(self, specs: Sequence[OpSpec]) -> np.ndarray:
        """Scaled row plus the op's part of the further terms."""
        if not self._coefficients:
            raise UsageError("This aggregator was not fitted yet: call fit or restore first.")
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
        if unknown := self._coefficients.keys() - SUMMED:
            raise ValueError(f"{min(unknown)} is no term")
        self._rows_ms = dict(zip(arrays["op_key"].tolist(), arrays["row_ms"].tolist(), strict=True))
