"""What kernels of ONNX models cost: a measured row, a model of the rows of its family, or a bound; and how prices add up.

Kernels are measured among copies of themselves (`Setting.scenario`), so that they meet the caches as inside a network. What
copies do not show is weights that no cache holds: no kernel is faster than its weights can be read (a speed that single-row
products with huge weights tell). Whole networks calibrate the sum:

    latency = scale x kernels + reading of weights, where that takes longer + per megabyte of activations + per node

Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwbench.lut.table import Lut
from hwbench.network import work
from hwbench.network.kernel_canonical import canonical
from hwbench.network.op import base as ops
from hwbench.network.spec import AMONG_COPIES, OpSpec, Setting
from hwbench.predictor.kernel_bound import Bound
from hwbench.predictor.model_latency import BOUNDED, MEASURED, MODELLED
from hwbench.predictor.op_latency import OpModel, known

TERMS = ("rows_ms", "activations_mb", "nodes")
PRIOR_WEIGHT = 0.03
"""How firmly, before any network is seen, kernels are taken to add up as measured (relative weight of one network)."""
PRIOR_SCALES = (1.0, 0.05, 2e-4)
"""What each term may plausibly weigh: a ratio, ms per megabyte, ms per node."""
STREAMED_BYTES = 60_000_000
"""Single-row products with more weights than this tell how fast memory is read: few last caches hold them."""
THIN = 4
"""Rows up to which a product does less arithmetic than reading."""
MOST_BOUNDED = 0.1
"""Share of a network that may be bounded only, if it is to calibrate others or to be told apart from them."""
ALIKE = 0.5
"""How far kernels of one group are wrong in the same direction: correlation of their errors."""
EXTRAPOLATION = 1e4
"""Kernels so many times beyond the measured sizes are priced: their roofline is physics, and doubt grows with distance."""


@dataclass(frozen=True)
class Prices:
    """What kernels cost, from a table's rows and a model of them."""

    model: OpModel
    bound: Bound
    rows_ms: Mapping[str, float]
    """Measured kernels by their canonical keys."""
    setting: Setting
    stream_ms_per_mb: float = 0.0
    """Least time a megabyte of weights takes to come from memory."""
    cache_bytes: int = 0
    """What the last cache holds: weights of a model that fit into it stay there."""

    def of(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ms, relative doubt, which of PRICES it is) of each kernel."""
        if not specs:
            return np.zeros(0), np.zeros(0), np.zeros(0, object)
        ms, doubt = self.model.predict(specs)
        price = np.full(len(specs), MODELLED, object)
        unknown = np.flatnonzero(np.isnan(ms)).tolist()
        if unknown:
            ms[unknown], doubt[unknown] = self.bound.predict([known(specs[i], self.setting) for i in unknown])
            price[unknown] = BOUNDED
        measured = np.array([spec.key in self.rows_ms for spec in specs])
        price[measured] = MEASURED
        ms = np.where(measured, [self.rows_ms.get(spec.key, np.nan) for spec in specs], ms)
        return ms, np.where(measured, 0.0, doubt), price

    def in_network(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The same for all kernels of one model, repeats included, and which of them last as long as reading their weights."""
        distinct = list(dict.fromkeys(specs))
        at = {spec: i for i, spec in enumerate(distinct)}
        ms, doubt, price = (values[[at[spec] for spec in specs]] for values in self.of(distinct))
        weights = np.array([weights_mb(spec) for spec in specs])
        reading_ms = weights * self.stream_ms_per_mb * (weights.sum() * 1e6 > self.cache_bytes)
        return np.maximum(ms, reading_ms), doubt, price, reading_ms > ms

    def too_little_known(self, specs: Sequence[OpSpec]) -> list[str]:
        """Keys of kernels that are only bounded, where they are more than a crumb of the sum; else nothing."""
        ms, _, price, _ = self.in_network(specs)
        bounded = price == BOUNDED
        if ms[bounded].sum() <= MOST_BOUNDED * ms.sum():
            return []
        return sorted({spec.key for spec, unknown in zip(specs, bounded, strict=True) if unknown})


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


def kernel_setting(setting: Setting) -> Setting:
    """How kernels of a setting are measured."""
    return replace(setting, scenario=AMONG_COPIES)


def kernel_rows(table: Lut, setting: Setting) -> dict[str, float]:
    """Measured kernels of a table by their canonical keys."""
    rows = {key: ms for key, ms in table.values(setting).items() if ms and key.startswith("kernel(")}
    return {canonical(OpSpec.parse(key)).key: ms for key, ms in rows.items()}


def node_terms(spec: OpSpec) -> tuple[float, float]:
    """What one node adds beside its kernel's price: (megabytes of activations, node)."""
    inputs, outputs = ops.op_of(spec).signature(spec)
    passed = sum(int(np.prod(t.shape)) * work.ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    return passed / 1e6, 1.0


def terms_of(specs: Sequence[OpSpec], prices: Prices) -> Terms:
    """The sums of a model's kernels, repeats included; NaN where a kernel has no price."""
    ms, doubt, _, reading = prices.in_network(specs)
    others = np.array([node_terms(spec) for spec in specs]).reshape(-1, 2).sum(axis=0)
    values = np.array([float(ms[~reading].sum()), *others])
    return Terms(values, float(ms[reading].sum()), doubt_of(specs, ms * doubt))


def doubt_of(specs: Sequence[OpSpec], off_ms: np.ndarray) -> float:
    """How far the sum of prices may be off, in ms, from how far each may be; a price is wrong the same way each time."""
    distinct = list(dict.fromkeys(specs))
    at = {spec: i for i, spec in enumerate(distinct)}
    off = np.bincount([at[spec] for spec in specs], off_ms, len(distinct)) if specs else np.zeros(0)
    return float(doubts_of(off[None, :], membership(distinct))[0])


def membership(specs: Sequence[OpSpec]) -> np.ndarray:
    """[kernel, group] -> whether the kernel is of that group."""
    groups = [ops.describe(spec)[0] for spec in specs]
    each = list(dict.fromkeys(groups))
    return np.array([[mine == group for group in each] for mine in groups], float).reshape(len(specs), len(each))


def doubts_of(off_ms: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The same for many networks: off_ms[network, kernel]. Kernels of one group are partly wrong the same way."""
    return np.asarray(np.sqrt(ALIKE * ((off_ms @ groups) ** 2).sum(axis=1) + (1 - ALIKE) * (off_ms**2).sum(axis=1)))


def calibrate(terms: Sequence[Terms], measured_ms: np.ndarray) -> np.ndarray:
    """Weights of the terms: least relative error, none negative, drawn to "kernels add up" where networks do not tell."""
    from scipy.optimize import nnls

    matrix = np.array([t.values for t in terms]) / measured_ms[:, None]
    left = 1 - np.array([t.reading_ms for t in terms]) / measured_ms
    prior = PRIOR_WEIGHT * len(terms) ** 0.5 * np.diag(1 / np.array(PRIOR_SCALES))
    wanted = np.concatenate([left, prior @ np.eye(len(TERMS))[0]])
    return np.asarray(nnls(np.vstack([matrix, prior]), wanted)[0])
