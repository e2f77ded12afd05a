"""What kernels of ONNX models cost: measured rows where there are some, a model of all rows for the others, calibrated.

Alone, a kernel finds everything in the cache; in a network weights come from memory (where they are more than the last cache
holds: no kernel is faster than its weights can be read, a speed that single-row products with huge weights tell) and
activations from wherever the last kernel left them. Whole networks calibrate the sum:

    latency = scale x kernels + reading of weights, where that takes longer + per megabyte of activations + per node

Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.lut.table import Lut
from hwbench.network import work
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.op_latency import OpModel

TERMS = ("rows_ms", "activations_mb", "nodes")
PRIOR_WEIGHT = 0.03
"""How firmly, before any network is seen, kernels are taken to add up as measured (relative weight of one network)."""
PRIOR_SCALES = (1.0, 0.05, 2e-4)
"""What each term may plausibly weigh: a ratio, ms per megabyte, ms per node."""
STREAMED_BYTES = 60_000_000
"""Single-row products with more weights than this tell how fast memory is read: few last caches hold them."""
THIN = 4
"""Rows up to which a product does less arithmetic than reading."""
EXTRAPOLATION = 1e4
"""Kernels so many times beyond the measured sizes are priced: their roofline is physics, and doubt grows with distance."""


@dataclass(frozen=True)
class Prices:
    """What kernels cost, from a table's rows and a model of them."""

    model: OpModel
    rows_ms: Mapping[str, float]
    stream_ms_per_mb: float = 0.0
    """Least time a megabyte of weights takes to come from memory."""
    cache_bytes: int = 0
    """What the last cache holds: weights of a model that fit into it stay there."""

    def of(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ms alone, relative doubt, whether measured) of each kernel; NaN where neither table nor model knows it."""
        ms, doubt = self.model.predict(specs)
        measured = np.array([spec.key in self.rows_ms for spec in specs])
        ms = np.where(measured, [self.rows_ms.get(spec.key, np.nan) for spec in specs], ms)
        return ms, np.where(measured, 0.0, doubt), measured

    def in_network(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The same for all kernels of one model, repeats included, and which of them last as long as reading their weights."""
        distinct = list(dict.fromkeys(specs))
        at = {spec: i for i, spec in enumerate(distinct)}
        ms, doubt, measured = (values[[at[spec] for spec in specs]] for values in self.of(distinct))
        weights = np.array([weights_mb(spec) for spec in specs])
        reading_ms = weights * self.stream_ms_per_mb * (weights.sum() * 1e6 > self.cache_bytes)
        return np.maximum(ms, reading_ms), doubt, measured, reading_ms > ms


def weights_mb(spec: OpSpec) -> float:
    """Megabytes of weights a kernel reads."""
    return ops.op_of(spec).work(spec).parameters_read * 4 / 1e6


def stream_ms_per_mb(rows_ms: Mapping[str, float]) -> float:
    """How long a megabyte takes to come from memory, from single-row products with huge weights; 0 if none was measured."""
    found = []
    for key, ms in rows_ms.items():
        spec = OpSpec.parse(key)
        megabytes = weights_mb(spec)
        if megabytes * 1e6 >= STREAMED_BYTES and ops.describe(spec)[1].get("m", THIN + 1) <= THIN:
            found.append(ms / megabytes)
    return float(np.median(found)) if found else 0.0


@dataclass(frozen=True)
class Terms:
    """One network's sums, and the doubt of its kernels' prices."""

    values: np.ndarray
    """One per TERMS."""
    reading_ms: float
    """Kernels that last as long as reading their weights: not scaled, memory is as fast in a network as alone."""
    doubt_ms: float


def kernel_rows(table: Lut, setting: Setting) -> dict[str, float]:
    """Measured kernels of a table by key."""
    return {key: ms for key, ms in table.values(setting).items() if ms and key.startswith("kernel(")}


def node_terms(spec: OpSpec) -> tuple[float, float]:
    """What one node adds beside its kernel's price: (megabytes of activations, node)."""
    inputs, outputs = ops.op_of(spec).signature(spec)
    passed = sum(int(np.prod(t.shape)) * work.ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    return passed / 1e6, 1.0


def terms_of(specs: Sequence[OpSpec], prices: Prices) -> Terms:
    """The sums of a model's kernels, repeats included; NaN where a kernel has no price."""
    ms, doubt, _, reading = prices.in_network(specs)
    off: dict[OpSpec, float] = {}
    for spec, part in zip(specs, ms * doubt, strict=True):  # one kernel's price is wrong the same way each time
        off[spec] = off.get(spec, 0.0) + float(part)
    others = np.array([node_terms(spec) for spec in specs]).sum(axis=0)
    doubt_ms = float(np.sqrt(sum(part**2 for part in off.values())))
    return Terms(np.array([float(ms[~reading].sum()), *others]), float(ms[reading].sum()), doubt_ms)


def calibrate(terms: Sequence[Terms], measured_ms: np.ndarray) -> np.ndarray:
    """Weights of the terms: least relative error, none negative, drawn to "kernels add up" where networks do not tell."""
    from scipy.optimize import nnls

    matrix = np.array([t.values for t in terms]) / measured_ms[:, None]
    left = 1 - np.array([t.reading_ms for t in terms]) / measured_ms
    prior = PRIOR_WEIGHT * len(terms) ** 0.5 * np.diag(1 / np.array(PRIOR_SCALES))
    wanted = np.concatenate([left, prior @ np.eye(len(TERMS))[0]])
    return np.asarray(nnls(np.vstack([matrix, prior]), wanted)[0])
