"""Softmax over the last axis of attention scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class Softmax(Primitive):
    """Over n of (heads, m, n)."""

    fields = {"heads": (), "m": (), "n": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["heads"], spec["m"], spec["n"])
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def work(self, spec: OpSpec) -> Work:
        """5 per value: maximum, difference, exponential, sum, division."""
        return Work(0, 5 * spec["heads"] * spec["m"] * spec["n"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        return [graph.node("Softmax", inputs[0], axis=-1)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Over the last axis."""
        return [inputs[0].softmax(-1)]
