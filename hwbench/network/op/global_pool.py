"""Mean of every channel of a feature map, kept as a 1 x 1 map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class GlobalPool(Primitive):
    """(channels, height, width) -> (channels, 1, 1)."""

    fields = {"channels": (), "height": (), "width": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Map in, 1 x 1 map out."""
        channels = spec["channels"]
        return (Tensor("x", (channels, spec["height"], spec["width"])),), (Tensor("y", (channels, 1, 1)),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        return Work(0, spec["channels"] * spec["height"] * spec["width"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """AdaptiveAvgPool2d(1) and mean((2, 3), keepdim=True) in torch."""
        return [graph.node("ReduceMean", inputs[0], graph.constant([2, 3]), keepdims=1)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Both sides to one."""
        return [inputs[0].mean((2, 3), keepdim=True)]
