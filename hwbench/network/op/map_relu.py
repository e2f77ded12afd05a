"""ReLU of a feature map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import OnMap, Work
from hwbench.network.spec import OpSpec


class MapRelu(OnMap):
    """max(x, 0)."""

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        return Work(0, spec["channels"] * spec["height"] * spec["width"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        return [graph.node("Relu", inputs[0])]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The same on maps."""
        return [inputs[0].relu()]
