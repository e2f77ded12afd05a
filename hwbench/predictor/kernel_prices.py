"""What kernels of ONNX models cost: a measured row, a model of the rows of its family, or a bound; and how prices add up.

Kernels are measured among copies of themselves (`Setting.scenario`), so that they meet the caches as inside a network. What
copies do not show: weights of a whole model that no cache holds come from memory at every run; a small activation is still
near when the next kernel reads it. Whole networks calibrate what that costs and saves:

    latency = scale x kernels + per megabyte of streamed weights + per megabyte of near and of far activations + per node

Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hwbench.lut.table import Lut
from hwbench.network import work
from hwbench.network.graph import Tensor
from hwbench.network.kernel_canonical import canonical
from hwbench.network.kernel_description import EDITION
from hwbench.network.op import base as ops
from hwbench.network.spec import AMONG_COPIES, OpSpec, Setting
from hwbench.predictor.kernel_bound import Bound
from hwbench.predictor.model_latency import BOUNDED, MEASURED, MODELLED
from hwbench.predictor.op_latency import PHYSICS, OpModel, known

TERMS = ("rows_ms", "streamed_mb", "near_mb", "far_mb", "nodes")
FEATURES = (*TERMS, *PHYSICS, f"kernel-descriptions-{EDITION}")
"""What a stored predictor was learnt from; one learnt from anything else is built again."""
PRIOR = {
    "rows_ms": (1.0, 0.1),
    "streamed_mb": (0.0, 0.02),
    "near_mb": (0.0, 0.003),
    "far_mb": (0.0, 0.003),
    "nodes": (0.0, 2e-4),
}
"""Before any network is seen, kernels add up as measured: mean and standard deviation of what a term weighs."""
UNEXPLAINED = 0.05
"""How far a network's latency is expected to lie from its terms, relative: how firmly networks decide against the prior."""
NEAR_BYTES = 500_000
"""Activations up to this size are near when the next kernel reads them: about half a second cache."""
STREAMED_BYTES = 60_000_000
"""Single-row products with more weights than this tell how fast memory is read: few last caches hold them."""
THIN = 4
"""Rows up to which a product does less arithmetic than reading."""
MOST_BOUNDED = 0.1
"""Share of a network that may be bounded only, if it is to calibrate others or to be told apart from them."""
ALIKE = 0.5
"""How far kernels of one group are wrong in the same direction: correlation of their errors."""
BY_DATA = {"PRelu": 0.25, "NonMaxSuppression": 0.5}
"""Kernels whose time depends on data, which random ones do not show: how far, as a standard deviation of its logarithm. Signs
of a real image come in runs that a processor foresees; real boxes overlap more."""
EXTRAPOLATION = 1e6
"""Kernels so many times beyond the measured sizes are priced: their roofline is physics, and doubt grows with distance."""


@dataclass(frozen=True)
class Prices:
    """What kernels cost, from a table's rows and a model of them."""

    model: OpModel
    bound: Bound
    rows_ms: Mapping[str, float]
    """Measured kernels by their canonical keys."""
    setting: Setting
    cache_bytes: int = 0
    """What the last cache holds."""
    stream_ms_per_mb: float = 0.0
    """Least time a megabyte takes to come from memory."""

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
        ms = np.maximum(ms, [self.stream_ms_per_mb * streamed_mb(spec, self.cache_bytes) for spec in specs])
        by_data = np.array([BY_DATA.get(str(spec["type"]), 0.0) for spec in specs])
        measured = np.array([spec.key in self.rows_ms for spec in specs])
        price[measured] = MEASURED
        ms = np.where(measured, [self.rows_ms.get(spec.key, np.nan) for spec in specs], ms)
        return ms, np.hypot(np.where(measured, 0.0, doubt), by_data), price

    def each(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for all kernels of one model, repeats included, each priced once."""
        distinct = list(dict.fromkeys(specs))
        at = {spec: i for i, spec in enumerate(distinct)}
        ms, doubt, price = (values[[at[spec] for spec in specs]] for values in self.of(distinct))
        return ms, doubt, price

    def columns(self, specs: Sequence[OpSpec], ms: np.ndarray) -> np.ndarray:
        """[kernel, term] of all kernels of one model that were given these prices."""
        found = np.column_stack([ms, np.array([beside(spec, self.cache_bytes) for spec in specs]).reshape(-1, len(TERMS) - 1)])
        held = sum(map(weights_mb, specs)) + max(map(largest_mb, specs), default=0.0)
        found[:, TERMS.index("streamed_mb")] *= streamed_share(held, self.cache_bytes)
        return found

    def too_little_known(self, specs: Sequence[OpSpec]) -> list[str]:
        """Keys of kernels that are only bounded, where they are more than a crumb of the sum; else nothing."""
        ms, _, price = self.each(specs)
        bounded = price == BOUNDED
        if ms[bounded].sum() <= MOST_BOUNDED * ms.sum():
            return []
        return sorted({spec.key for spec, unknown in zip(specs, bounded, strict=True) if unknown})


@lru_cache(maxsize=None)
def beside(spec: OpSpec, cache_bytes: int) -> tuple[float, ...]:
    """What a kernel adds to the terms beside its price, as if all weights of the model were streamed."""
    weights = weights_mb(spec)
    # Two copies of more than half a cache were streamed when they were measured.
    streamed = weights if 2e6 * weights < cache_bytes else 0.0
    sizes = _tensors_mb(spec)
    near = sum(size for size in sizes if size * 1e6 <= NEAR_BYTES)
    return streamed, near, sum(sizes) - near, 1.0


@lru_cache(maxsize=None)
def streamed_mb(spec: OpSpec, cache_bytes: int) -> float:
    """What a kernel moves from and to memory because no cache holds it; what is written there is read first."""
    inputs, outputs = (_sizes_mb(side) for side in ops.op_of(spec).signature(spec))
    if inputs:  # of a table that is looked up in, a few rows come
        inputs[0] -= ops.describe(spec)[1].get("unread_bytes", 0.0) / 1e6
    read, written = (sum(size for size in side if size * 1e6 > cache_bytes) for side in ([*inputs, weights_mb(spec)], outputs))
    return float(read + 2 * written) if cache_bytes else 0.0


def stream_ms_per_mb(rows_ms: Mapping[str, float]) -> float:
    """How long a megabyte takes to come from memory, from single-row products with huge weights; 0 if none was measured."""
    found = []
    for key, ms in rows_ms.items():
        spec = OpSpec.parse(key)
        megabytes = weights_mb(spec)
        if megabytes * 1e6 >= STREAMED_BYTES and ops.describe(spec)[1].get("m", THIN + 1) <= THIN:
            found.append(ms / megabytes)
    return float(np.median(found)) if found else 0.0


def streamed_share(held_mb: np.ndarray | float, cache_bytes: int) -> np.ndarray:
    """How much of its weights a model reads from memory: nothing below half a last cache, all from a whole one on."""
    if not cache_bytes:
        return np.zeros_like(held_mb)
    return np.clip(2e6 * np.asarray(held_mb) / cache_bytes - 1, 0.0, 1.0)


@lru_cache(maxsize=None)
def largest_mb(spec: OpSpec) -> float:
    """The largest activation a kernel reads or writes."""
    return max(_tensors_mb(spec), default=0.0)


def _tensors_mb(spec: OpSpec) -> list[float]:
    return [size for side in ops.op_of(spec).signature(spec) for size in _sizes_mb(side)]


def _sizes_mb(tensors: Sequence[Tensor]) -> list[float]:
    return [int(np.prod(t.shape)) * work.ITEM_BYTES[t.dtype] / 1e6 for t in tensors]


@lru_cache(maxsize=None)
def weights_mb(spec: OpSpec) -> float:
    """Megabytes of weights a kernel reads; not those that would only meet padding."""
    return ops.op_of(spec).work(spec).parameters_read * ops.describe(spec)[1].get("used", 1.0) * 4 / 1e6


@dataclass(frozen=True)
class Terms:
    """One network's sums, and the doubt of its kernels' prices."""

    values: np.ndarray
    """One per TERMS."""
    doubt_ms: float


def kernel_setting(setting: Setting) -> Setting:
    """How kernels of a setting are measured."""
    return replace(setting, scenario=AMONG_COPIES)


def kernel_rows(table: Lut, setting: Setting) -> dict[str, float]:
    """Measured kernels of a table by their canonical keys."""
    rows = {key: ms for key, ms in table.values(setting).items() if ms and key.startswith("kernel(")}
    return {canonical(OpSpec.parse(key)).key: ms for key, ms in rows.items()}


def terms_of(specs: Sequence[OpSpec], prices: Prices) -> Terms:
    """The sums of a model's kernels, repeats included."""
    ms, doubt, _ = prices.each(specs)
    return Terms(prices.columns(specs, ms).sum(axis=0), doubt_of(specs, ms * doubt))


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


def calibrate(terms: Sequence[Terms], measured_ms: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights of the terms: least relative error, drawn to the prior where networks do not tell.

    Args:
        terms: Of each network.
        measured_ms: Of each network.
        counts: How much each network counts: those of one family tell less than as many of others.
    """
    means, widths = np.array([PRIOR[term] for term in TERMS]).T
    matrix = np.array([t.values for t in terms]) / measured_ms[:, None]
    firm = np.sqrt(counts) / np.hypot(UNEXPLAINED, [t.doubt_ms for t in terms] / measured_ms)
    left = np.vstack([matrix * firm[:, None], np.diag(1 / widths)])
    right = np.concatenate([firm, means / widths])
    return np.asarray(np.linalg.lstsq(left, right, rcond=None)[0])
