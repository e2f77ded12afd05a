"""Exact GELU in the five-node erf form that runtimes recognise and fuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Elementwise, Work
from hwbench.network.spec import OpSpec


class Gelu(Elementwise):
    """x * (1 + erf(x / sqrt 2)) / 2."""

    def work(self, spec: OpSpec) -> Work:
        """5 per value, one per node."""
        return Work(0, 5 * spec["tokens"] * spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Scalar constants matter: with one-element vectors onnxruntime 1.31 misses the fusion."""
        scaled = graph.node("Div", inputs[0], graph.constant(2**0.5, np.float32))
        shifted = graph.node("Add", graph.node("Erf", scaled), graph.constant(1.0, np.float32))
        return [graph.node("Mul", graph.node("Mul", inputs[0], shifted), graph.constant(0.5, np.float32))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """With the error function."""
        return [torch.nn.functional.gelu(inputs[0])]
