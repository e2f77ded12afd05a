"""Eight-bit networks: graphs that write the layers of other families as quantisers do, with known scales or at run time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hwbench.network.reference.builder import Build, Graph, Shape, Sides
from hwbench.network.reference.convolutional import mobilenet_v2, resnet
from hwbench.network.reference.transformer import TEXT, bert

ZERO = 128
"""The middle of unsigned numbers; what a ReLU leaves starts at 0."""


class StaticGraph(Graph):
    """Layers between QuantizeLinear and DequantizeLinear, scales known: runtimes make one 8-bit kernel of each."""

    def __init__(self, name: str, seed: int = 0) -> None:
        super().__init__(name, seed)
        self._grids: dict[str, tuple[float, int]] = {}
        self._quantised: dict[str, str] = {}

    def quantise(self, x: str, grid: tuple[float, int] | None = None) -> str:
        """A tensor rounded to 8 bits, once; `grid` is its scale and zero point, drawn unless given."""
        if x in self._grids:
            return x
        if x not in self._quantised:
            scale, zero = grid or (float(self.rng.uniform(0.03, 0.08)), ZERO)
            stored = self.constant(scale), self.constant(zero, np.uint8)
            self._quantised[x] = self.node("DequantizeLinear", self.node("QuantizeLinear", x, *stored), *stored)
            self._grids[self._quantised[x]] = scale, zero
        return self._quantised[x]

    def activate(self, x: str, name: str) -> str:
        """Every layer's result is rounded; a ReLU is then but a zero point of 0."""
        if name in ("relu", "relu6"):
            return self.quantise(x, (float(self.rng.uniform(0.03, 0.06)), 0))
        return self.quantise(super().activate(x, name))

    def add(self, a: str, b: str) -> str:
        """Both sides are rounded."""
        return super().add(self.quantise(a), self.quantise(b))

    def matmul(self, a: str, b: str) -> str:
        """Both sides are rounded."""
        return super().matmul(self.quantise(a), self.quantise(b))

    def softmax(self, x: str) -> str:
        """Between 0 and 1."""
        return self.quantise(super().softmax(x), (1 / 255, 0))

    def max_pool(self, x: str, kernel: Sides, stride: Sides, padding: int = 0) -> str:
        """The scale stays the same."""
        x = self.quantise(x)
        return self.quantise(super().max_pool(x, kernel, stride, padding), self._grids[x])

    def _convolve(
        self, x: str, weights: np.ndarray, biases: np.ndarray | None, shape: Shape, attributes: dict[str, Any]
    ) -> str:
        x = self.quantise(x)
        return self.node("Conv", x, *self._stored(x, weights, biases), shape=shape, **attributes)

    def _product(self, x: str, weights: np.ndarray, biases: np.ndarray | None, gemm: bool) -> str:
        x, shape = self.quantise(x), (*self.shapes[x][:-1], weights.shape[1])
        if gemm:
            return self.node("Gemm", x, *self._stored(x, weights.T, biases), shape=shape, transB=1)
        y = self.node("MatMul", x, *self._stored(x, weights, None, per_row=False), shape=shape)
        return y if biases is None else self.node("Add", self.store("bias", biases), y)

    def _stored(self, x: str, weights: np.ndarray, biases: np.ndarray | None, per_row: bool = True) -> list[str]:
        """Weights of 8 bits, and biases in units of both scales; each is widened again by a node."""
        whole, scale = _rounded(weights, per_row)
        stored = [self._widened("weight", whole, scale)]
        if biases is not None:
            unit = scale * np.float32(self._grids[x][0])
            stored.append(self._widened("bias", np.round(biases / unit).astype(np.int32), unit))
        return stored

    def _widened(self, name: str, whole: np.ndarray, scale: np.ndarray) -> str:
        stored = self.store(f"{name}_quantized", whole), self.store(f"{name}_scale", scale)
        zero = self.store(f"{name}_zero_point", np.zeros(scale.shape, whole.dtype))
        return self.node("DequantizeLinear", *stored, zero, shape=whole.shape, axis=0)


class DynamicGraph(Graph):
    """Activations rounded by what they are at run time, whole-number products scaled back afterwards."""

    def __init__(self, name: str, seed: int = 0) -> None:
        super().__init__(name, seed)
        self._known: dict[str, list[str]] = {}

    def _dynamic(self, x: str) -> list[str]:
        """The rounded tensor, its scale and its zero point; one node for all that read it."""
        if x not in self._known:
            self._known[x] = self.nodes("DynamicQuantizeLinear", x, shapes=[self.shapes[x], (), ()])
        return self._known[x]

    def _scaled(self, counted: str, scale: str, weight_scale: np.ndarray, biases: str | None) -> str:
        both = self.node("Mul", scale, self.constant(weight_scale))
        y = self.node("Mul", self.cast(counted), both)
        return y if biases is None else self.node("Add", y, biases)

    def _convolve(
        self, x: str, weights: np.ndarray, biases: np.ndarray | None, shape: Shape, attributes: dict[str, Any]
    ) -> str:
        rounded, scale, zero = self._dynamic(x)
        whole, weight_scale = _rounded(weights)
        stored = self.store("weight_quantized", (whole.astype(np.int16) + ZERO).astype(np.uint8))
        middle = self.constant(ZERO, np.uint8)
        counted = self.node("ConvInteger", rounded, stored, zero, middle, shape=shape, **attributes)
        sides = [1] * (len(shape) - 2)
        added = None if biases is None else self.store("bias", biases.reshape(1, -1, *sides))
        return self._scaled(counted, scale, weight_scale, added)

    def _product(self, x: str, weights: np.ndarray, biases: np.ndarray | None, gemm: bool) -> str:
        rounded, scale, zero = self._dynamic(x)
        whole, weight_scale = _rounded(weights)
        stored, middle = self.store("weight_quantized", whole), self.constant(0, np.int8)
        shape = (*self.shapes[x][:-1], weights.shape[1])
        counted = self.node("MatMulInteger", rounded, stored, zero, middle, shape=shape)
        return self._scaled(counted, scale, weight_scale, None if biases is None else self.store("bias", biases))


def _rounded(weights: np.ndarray, per_row: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Signed 8-bit numbers and the scale that brings them back: one for all, or one per row (filter)."""
    axes = tuple(range(1, weights.ndim)) if per_row else None
    scale = np.asarray(np.abs(weights).max(axis=axes, keepdims=per_row) / np.float32(127))
    return np.round(weights / scale).astype(np.int8), scale.ravel() if per_row else scale


FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "int8-mobilenet": {
        "160": partial(mobilenet_v2, 160, 0.75, StaticGraph),
        "224": partial(mobilenet_v2, 224, 1.4, StaticGraph),
    },
    "int8-resnet": {
        "10-160": partial(resnet, 160, (48, 96, 192, 384), (1, 1, 1, 1), StaticGraph),
        "18-224": partial(resnet, 224, (64, 128, 256, 512), (2, 2, 2, 2), StaticGraph),
    },
    "int8-bert": {"3x256": partial(bert, 3, 256, 64, StaticGraph), "6x384": partial(bert, 6, 384, 64, StaticGraph)},
    "dynamic-bert": {"2x128": partial(bert, 2, 128, 48, DynamicGraph), "6x512": partial(bert, 6, 512, 128, DynamicGraph)},
    "conv-integer": {
        "8-64": partial(resnet, 64, (24, 40, 80), (1, 1, 1), DynamicGraph),
        "14-192": partial(resnet, 192, (48, 96, 192, 384), (1, 2, 2, 1), DynamicGraph),
    },
}
HIGH: Mapping[str, Mapping[str, int]] = {"int8-bert": TEXT, "dynamic-bert": TEXT}
"""Family -> what its whole numbers are drawn below."""
