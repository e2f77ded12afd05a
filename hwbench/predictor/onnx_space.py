"""The latency of all networks of a space by the kernels of their ops: each op is priced once, a network is their sum.

Beside the prices, weights that the last cache does not hold are read from memory, and that is a matter of the whole network.
Made by `OnnxLatency.for_space` (onnx_latency.py). Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.spec import OpSpec
from hwbench.predictor.base import Facts, Latencies
from hwbench.predictor.card_types import OnnxStatistic
from hwbench.predictor.kernel_prices import (
    TERMS,
    Prices,
    beside,
    doubts_of,
    largest_mb,
    membership,
    streamed_share,
    weights_mb,
)
from hwbench.predictor.model_latency import MEASURED
from hwbench.predictor.model_prices import weights_of
from hwbench.space import slots
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


@dataclass(frozen=True)
class SpaceKernels:
    """The latency of one space's networks: the kernels of each op, as often as a network runs the op."""

    facts: Facts
    space: Space
    specs: tuple[OpSpec, ...]
    """Every op of the space."""
    kernels: tuple[Sequence[OpSpec], ...]
    """What the runtime makes of each."""
    prices: Prices
    part: OnnxStatistic
    margin: float | None = None
    """Each interval is as wide as the prices of its kernels are doubted."""

    def predict(self, population: Population) -> Latencies:
        """Every architecture: weights that the last cache does not hold are read from memory, as in a whole model."""
        counts = slots.op_counts(self.space, population, self.specs)
        value, own, doubts = self._ops
        share = streamed_share(self._held_mb(counts), self.prices.cache_bytes)
        found = counts @ value + share * (counts @ self._streamed_ms)
        kernels_ms, measured_ms = (counts @ own).T
        return latencies(found, doubts_of(counts @ doubts, self._groups), measured_ms / kernels_ms, self.part)

    @cached_property
    def compiled(self) -> CompiledSum | None:
        """The value as a sum over ops, where all networks stream their weights alike: nothing of them, or all."""
        weights = CompiledSum(self.space, lambda specs: self._of(self._weights_mb, specs))
        most = CompiledSum(self.space, lambda specs: self._of(-self._weights_mb, specs))
        try:
            ends = np.array([weights.minimum()[0], -most.minimum()[0] + float(self._largest_mb.max())])
        except UsageError:  # too entangled to know
            return None
        share = streamed_share(ends, self.prices.cache_bytes)
        if self._streamed_ms.any() and share[0] != share[1]:
            return None
        return CompiledSum(self.space, lambda specs: self._of(self._ops[0] + share[0] * self._streamed_ms, specs))

    def _of(self, values: np.ndarray, specs: Sequence[OpSpec]) -> np.ndarray:
        at = {spec: i for i, spec in enumerate(self.specs)}
        return np.asarray(values[[at[spec] for spec in specs]])

    def _held_mb(self, counts: np.ndarray) -> np.ndarray:
        """What a last cache would have to hold: all weights and the largest activation."""
        return np.asarray(counts @ self._weights_mb + (np.minimum(counts, 1) * self._largest_mb).max(axis=1, initial=0.0))

    @cached_property
    def _weights_mb(self) -> np.ndarray:
        return np.array([sum(map(weights_mb, each)) for each in self.kernels])

    @cached_property
    def _largest_mb(self) -> np.ndarray:
        return np.array([max(map(largest_mb, each), default=0.0) for each in self.kernels])

    @cached_property
    def _distinct(self) -> list[OpSpec]:
        """All kernels, each once."""
        return list(dict.fromkeys(kernel for each in self.kernels for kernel in each))

    @cached_property
    def _groups(self) -> np.ndarray:
        return membership(self._distinct)

    @cached_property
    def _often(self) -> np.ndarray:
        """[op, kernel] -> how often the op runs the kernel."""
        often = np.zeros((len(self.kernels), len(self._distinct)))
        at = {kernel: i for i, kernel in enumerate(self._distinct)}
        for row, each in zip(often, self.kernels, strict=True):
            np.add.at(row, [at[kernel] for kernel in each], 1)
        return often

    @cached_property
    def _streamed_ms(self) -> np.ndarray:
        """What each op takes longer where all weights are streamed."""
        streamed = np.array([beside(kernel, self.prices.cache_bytes)[0] for kernel in self._distinct])
        return np.asarray(self._often @ streamed * self.part.weights["streamed_mb"])

    @cached_property
    def _ops(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each op, nothing streamed: (calibrated ms, prices of all and of measured kernels, doubt by kernel)."""
        ms, doubt, price = self.prices.of(self._distinct)
        others = np.array([[0.0, *beside(kernel, self.prices.cache_bytes)[1:]] for kernel in self._distinct])
        parts = np.column_stack([ms, others.reshape(-1, len(TERMS) - 1)]) @ weights_of(self.part)
        own = np.column_stack([ms, ms * (price == MEASURED)])
        return self._often @ parts, self._often @ own, self._often * (ms * doubt)


def latencies(value: np.ndarray, doubt_ms: np.ndarray, coverage: np.ndarray, part: OnnxStatistic) -> Latencies:
    """The calibrated interval: doubt of the kernels' prices, and of a family the calibration did not see."""
    low, high = part.band.band.bounds(value, np.hypot(doubt_ms / value, part.family_doubt))
    return Latencies(value, low, high, coverage)
