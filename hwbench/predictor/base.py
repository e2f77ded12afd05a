"""What a predictor is: it learns from measured whole networks and tells what each op adds to a network.

Its answer for a workload is `constant_ms` plus the sum of `op_ms` over the workload's ops, so a search can
compile it to arrays. State is JSON values and plain arrays, nothing that runs when loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hwbench.network import OpSpec, Workload


class Predictor(Protocol):
    """The contract of a predictor."""

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


def sum_ops(predictor: Predictor, workload: Workload) -> float:
    """The predictor's answer for one workload."""
    counts = workload.counts()
    return float(predictor.constant_ms + predictor.op_ms(list(counts)) @ np.array(list(counts.values()), float))


def weighted_fit(matrix: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Least squares of the relative error."""
    weights = 1.0 / measured
    return np.asarray(np.linalg.lstsq(matrix * weights[:, None], measured * weights, rcond=None)[0])
