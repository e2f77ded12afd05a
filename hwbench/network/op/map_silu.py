"""SiLU (swish) of a feature map: Sigmoid and Mul, as torch exports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import OnMap, Work
from hwbench.network.spec import OpSpec


class MapSilu(OnMap):
    """x * sigmoid(x)."""

    def work(self, spec: OpSpec) -> Work:
        """2 per value, one per node."""
        return Work(0, 2 * spec["channels"] * spec["height"] * spec["width"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Two nodes, which onnxruntime fuses into one."""
        return [graph.node("Mul", inputs[0], graph.node("Sigmoid", inputs[0]))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Of every value."""
        return [torch.nn.functional.silu(inputs[0])]
