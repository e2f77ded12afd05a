"""Hyperbolic tangent of a vector (BERT's pooler)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class Tanh(Primitive):
    """tanh(x) for one vector."""

    fields = {"dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        return (Tensor("x", (spec["dim"],)),), (Tensor("y", (spec["dim"],)),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        return Work(0, spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        return [graph.node("Tanh", inputs[0])]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Of every value."""
        return [inputs[0].tanh()]
