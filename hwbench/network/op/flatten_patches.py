"""Turns a feature map into tokens: (dim, height, width) -> (height * width, dim). Copies only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class FlattenPatches(Primitive):
    """Reshape and transpose."""

    fields = {"height": (), "width": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Map in, tokens out."""
        height, width, dim = spec["height"], spec["width"], spec["dim"]
        return (Tensor("x", (dim, height, width)),), (Tensor("y", (height * width, dim)),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """flatten(2).transpose(1, 2) in torch."""
        flat = graph.node("Reshape", inputs[0], graph.constant([graph.batch, spec["dim"], spec["height"] * spec["width"]]))
        return [graph.node("Transpose", flat, perm=[0, 2, 1])]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Positions become tokens."""
        return [inputs[0].flatten(2).transpose(1, 2)]
