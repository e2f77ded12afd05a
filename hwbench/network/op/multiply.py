"""Product of two sequences, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class Multiply(Primitive):
    """a * b."""

    fields = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Two of one shape in, one out."""
        shape = (spec["tokens"], spec["dim"])
        return (Tensor("a", shape), Tensor("b", shape)), (Tensor("y", shape),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        return Work(0, spec["tokens"] * spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        return [graph.node("Mul", *inputs)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Value by value."""
        return [inputs[0] * inputs[1]]
