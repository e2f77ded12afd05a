"""End-to-end regression: network = constant + sum over ops of weight x work, learnt from whole networks alone.

For runtimes that fuse across blocks, where rows measured alone say little. Every group of ops (see `op.base.describe`) has
its own non-negative weight per FLOP, byte, byte inside and call; with few networks these stay near the weights all groups
share (ridge), how near is settled by cross-validation. An op of a group that no network had costs what its row says; without
a row it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network import work
from hwbench.network.graph import Workload
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.aggregator.base import require_networks

TERMS = ("flops", "bytes_moved", "inner_bytes", "nodes")
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
"""How strongly groups are held together, tried in turn."""
FOLDS = 5


@lru_cache(maxsize=None)
def _work(spec: OpSpec) -> tuple[str, tuple[float, ...]]:
    """(group, terms) of one sample in fp32: a batch or another format scales all of them nearly alike."""
    found = {**work.features(spec, Setting()), "nodes": 1.0}
    return ops.describe(spec)[0], tuple(found[name] for name in TERMS)


class Regression:
    """Work by group of ops, weighted."""

    name: str

    def __init__(self) -> None:
        self.constant_ms = 0.0
        self._weights: dict[str, np.ndarray] = {}
        self._rows_ms: dict[str, float] = {}
        """Of ops whose group no network had."""

    def fit(self, rows_ms: Mapping[str, float], workloads: Sequence[Workload], measured_ms: np.ndarray) -> None:
        """Constant and weights of every group; rows are used only for groups no network has."""
        require_networks(workloads)
        groups = sorted({_work(s)[0] for w in workloads for s in w.counts()})
        summed = np.zeros((len(workloads), len(groups), len(TERMS)))
        for i, workload in enumerate(workloads):
            for spec, n in workload.counts().items():
                group, terms = _work(spec)
                summed[i, groups.index(group)] += n * np.array(terms)
        fold = np.arange(len(workloads)) % FOLDS

        def error(ridge: float) -> float:
            wrong = []
            for f in range(FOLDS):
                constant, weights = _solve(summed[fold != f], measured_ms[fold != f], ridge)
                guess = constant + np.einsum("ngt,gt->n", summed[fold == f], weights)
                wrong += list(np.abs(guess / measured_ms[fold == f] - 1))
            return float(np.mean(wrong))

        ridge = min(RIDGES, key=error)
        self.constant_ms, weights = _solve(summed, measured_ms, ridge)
        self._weights = dict(zip(groups, weights, strict=True))
        self._rows_ms = {key: ms for key, ms in rows_ms.items() if _work(OpSpec.parse(key))[0] not in self._weights}

    def op_ms(self, specs: Sequence[OpSpec]) -> np.ndarray:
        """Weighted work of each op, or its row; NaN without either."""
        if not self._weights:
            raise UsageError("This aggregator was not fitted yet: call fit or restore first.")
        found = []
        for spec in specs:
            group, terms = _work(spec)
            row_ms = self._rows_ms.get(spec.key, float("nan"))
            found.append(float(self._weights[group] @ terms) if group in self._weights else row_ms)
        return np.array(found, float)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything as values."""
        weights = {f"{g}.{t}": float(w) for g, row in self._weights.items() for t, w in zip(TERMS, row, strict=True)}
        keys = sorted(self._rows_ms)
        arrays = {"op_key": np.array(keys, str), "row_ms": np.array([self._rows_ms[k] for k in keys], float)}
        return {"constant_ms": self.constant_ms, "coefficients": weights}, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of `state`."""
        self.constant_ms = float(values["constant_ms"])
        self._weights = {}
        if "op_key" in arrays:  # older ones knew no rows
            self._rows_ms = dict(zip(arrays["op_key"].tolist(), arrays["row_ms"].tolist(), strict=True))
        for name, weight in values["coefficients"].items():
            group, _, term = name.rpartition(".")
            self._weights.setdefault(group, np.zeros(len(TERMS)))[TERMS.index(term)] = weight


def _solve(summed: np.ndarray, measured_ms: np.ndarray, ridge: float) -> tuple[float, np.ndarray]:
    """(constant, weights[group, term]), all non-negative, least relative error; groups pulled to their common weights."""
    from scipy.optimize import nnls

    n, groups, terms = summed.shape
    shared = np.column_stack([np.ones(n), summed.sum(axis=1)]) / measured_ms[:, None]
    scale = np.maximum(shared.mean(axis=0), 1e-30)
    common = nnls(np.vstack([shared / scale, 1e-3 * np.eye(terms + 1)]), np.append(np.ones(n), np.zeros(terms + 1)))[0] / scale
    own = np.column_stack([np.ones(n), summed.reshape(n, -1)]) / measured_ms[:, None]
    scale = np.maximum(own.mean(axis=0), 1e-30)
    wanted = np.concatenate([common[:1], np.tile(common[1:], groups)]) * scale
    pull = (ridge * n) ** 0.5
    solution = nnls(np.vstack([own / scale, pull * np.eye(own.shape[1])]), np.append(np.ones(n), pull * wanted))[0] / scale
    return float(solution[0]), solution[1:].reshape(groups, terms)
