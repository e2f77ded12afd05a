"""ReLU."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.network import OpSpec, Tensor
from hwbench.op.base import Graph, Primitive, Signature, Work


class Relu(Primitive):
    """max(x, 0)."""

    fields = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["tokens"], spec["dim"])
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        return Work(0, spec["tokens"] * spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        return [graph.node("Relu", inputs[0])]
