"""Prices a model's kernels one by one, and says when what is unknown of them could change the answer.

    hwbench predict MODEL.onnx                     measured row > model of its family > bound; each kernel says which
    hwbench predict MODEL.onnx --measure-missing   measures what matters most and has no row yet, and goes on

Bounded kernels are no reason to refuse, unless all of them together could move the total out of the interval of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwbench.network import work
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.card_types import OnnxStatistic
from hwbench.predictor.kernel_prices import TERMS, Prices, doubt_of
from hwbench.predictor.model_latency import BOUNDED, MEASURED, Layer
from hwbench.profiler.kernel_detection import DetectedKernel

UNSTATED = 1.5
"""Doubt of a node that cannot even be stated as a kernel: a factor of 4.5 either way."""
SURE = 1.645
"""Standard deviations that nineteen of twenty prices stay below."""
KNOWN_WELL = 0.01
"""Doubt left in a total, relative, below which measuring more kernels brings nothing."""


@dataclass(frozen=True)
class Priced:
    """All kernels of a model with their prices, all runs of each together."""

    kernels: tuple[DetectedKernel, ...]
    own_ms: np.ndarray
    """What the table, the model of its family or the bound says of each."""
    shares_ms: np.ndarray
    """Each one's part of the calibrated latency."""
    off_ms: np.ndarray
    """How far each price may be off, before it is calibrated: what intervals are calibrated on."""
    doubt: np.ndarray
    price: np.ndarray
    setting: Setting
    part: OnnxStatistic

    @property
    def total_ms(self) -> float:
        """The model's latency."""
        return float(self.shares_ms.sum())

    def interval(self, *, bounded: bool = True) -> tuple[float, float]:
        """(low, high); without the doubt of kernels that are only bounded where asked."""
        counted = np.ones(len(self.price), bool) if bounded else self.price != BOUNDED
        scale = float(np.hypot(self._doubt_ms(counted) / self.total_ms, self.part.family_doubt))
        low, high = self.part.band.band.bounds(np.array([self.total_ms]), np.array([scale]))
        return float(low[0]), float(high[0])

    def _doubt_ms(self, counted: np.ndarray) -> float:
        """Of the kernels counted; what cannot be stated stands by itself."""
        off = self.off_ms * counted
        stated = [i for i, kernel in enumerate(self.kernels) if kernel.spec is not None]
        lone = [i for i, kernel in enumerate(self.kernels) if kernel.spec is None]
        specs = [spec for i in stated if (spec := self.kernels[i].spec) is not None]
        return float(np.hypot(doubt_of(specs, off[stated]), np.sqrt((off[lone] ** 2).sum())))

    @property
    def undecided(self) -> bool:
        """Whether kernels that are only bounded could move the total out of the interval that the others have."""
        bounded = self.price == BOUNDED
        moved = float((self.shares_ms * np.expm1(SURE * self.doubt))[bounded].sum())
        return moved > self.interval(bounded=False)[1] - self.total_ms

    def worth_measuring(self) -> list[OpSpec]:
        """Kernels without a row, those that leave most doubt first, until the rest is known well enough."""
        off: dict[OpSpec, float] = {}
        for kernel, ms, price in zip(self.kernels, self.off_ms, self.price, strict=True):
            if kernel.spec is not None and price != MEASURED:
                off[kernel.spec] = off.get(kernel.spec, 0.0) + float(ms)
        order = sorted(off, key=lambda spec: -off[spec])
        left = np.cumsum([off[spec] for spec in order][::-1])[::-1]
        return [spec for spec, rest in zip(order, left, strict=True) if rest > KNOWN_WELL * self.total_ms]

    def layers(self) -> tuple[Layer, ...]:
        """What is told of each kernel."""
        return tuple(
            _layer(kernel, float(ms), str(price), float(doubt), self.setting)
            for kernel, ms, price, doubt in zip(self.kernels, self.own_ms, self.price, self.doubt, strict=True)
        )


def _layer(kernel: DetectedKernel, ms: float, price: str, doubt: float, setting: Setting) -> Layer:
    if kernel.spec is None:
        return Layer(kernel.name, kernel.type, kernel.type, ms, price, doubt, kernel.times)
    flops, moved = ops.op_of(kernel.spec).work(kernel.spec).flops, work.bytes_moved(kernel.spec, setting)
    key, n = kernel.spec.key, kernel.times
    return Layer(kernel.name, kernel.type, key, ms, price, doubt, n, float(flops * n), float(moved * n))


def price_model(kernels: tuple[DetectedKernel, ...], prices: Prices, part: OnnxStatistic, setting: Setting) -> Priced:
    """Every kernel with its price and its part of the calibrated latency."""
    stated = [i for i, kernel in enumerate(kernels) if kernel.spec is not None]
    specs = [spec for kernel in kernels if (spec := kernel.spec) is not None]
    times = np.array([kernel.times for kernel in kernels], float)
    own = np.full(len(kernels), float(prices.bound.call_ms * np.exp(prices.bound.kinds[""][0])))
    doubt, price = np.full(len(kernels), UNSTATED), np.full(len(kernels), BOUNDED, object)
    calibrated = own.copy()
    if specs:
        own[stated], doubt[stated], price[stated] = prices.each(specs)
        calibrated[stated] = prices.columns(specs, own[stated]) @ weights_of(part)
    return Priced(kernels, own * times, calibrated * times, own * doubt * times, doubt, price, setting, part)


def weights_of(part: OnnxStatistic) -> np.ndarray:
    """What each term weighs."""
    return np.array([part.weights[term] for term in TERMS])
