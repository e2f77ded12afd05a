"""Batch norm of a feature map where no convolution before it can take it in (after a sum).

As deployed: the statistics are part of scale and shift; the node is the one torch exports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import OnMap, Parameter, Work
from hwbench.network.spec import OpSpec


class MapNorm(OnMap):
    """Every channel scaled and shifted."""

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Scale and shift."""
        channels = spec["channels"]
        return (
            Parameter("weight", (channels,), ("channels",), init="ones"),
            Parameter("bias", (channels,), ("channels",), init="zeros"),
        )

    def work(self, spec: OpSpec) -> Work:
        """2 per value."""
        return Work(0, 2 * spec["channels"] * spec["height"] * spec["width"], 2 * spec["channels"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node, with mean 0 and variance 1."""
        weight, bias = (graph.parameter(prefix, p) for p in self.parameters(spec))
        mean, variance = (graph.constant([value] * spec["channels"], np.float32) for value in (0.0, 1.0))
        return [graph.node("BatchNormalization", inputs[0], weight, bias, mean, variance, epsilon=0.0)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Scale and shift."""
        return [inputs[0] * weights[0][:, None, None] + weights[1][:, None, None]]
