"""Turns tokens back into a feature map: (height * width, dim) -> (dim, height, width). Copies only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class UnflattenPatches(Primitive):
    """Transpose and reshape."""

    fields = {"height": (), "width": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Tokens in, map out."""
        height, width, dim = spec["height"], spec["width"], spec["dim"]
        return (Tensor("x", (height * width, dim)),), (Tensor("y", (dim, height, width)),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """transpose(1, 2).reshape(batch, dim, height, width) in torch."""
        moved = graph.node("Transpose", inputs[0], perm=[0, 2, 1])
        return [graph.node("Reshape", moved, graph.constant([graph.batch, spec["dim"], spec["height"], spec["width"]]))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Tokens become positions."""
        return [inputs[0].transpose(1, 2).unflatten(2, (spec["height"], spec["width"]))]
