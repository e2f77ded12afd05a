"""SiLU (swish) of a feature map: Sigmoid and Mul, as torch exports it."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.network import OpSpec, Tensor
from hwbench.op.base import Graph, Primitive, Signature, Work


class MapSilu(Primitive):
    """x * sigmoid(x)."""

    fields = {"channels": (), "height": (), "width": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["channels"], spec["height"], spec["width"])
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def work(self, spec: OpSpec) -> Work:
        """2 per value, one per node."""
        return Work(0, 2 * spec["channels"] * spec["height"] * spec["width"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Two nodes, which onnxruntime fuses into one."""
        return [graph.node("Mul", inputs[0], graph.node("Sigmoid", inputs[0]))]
