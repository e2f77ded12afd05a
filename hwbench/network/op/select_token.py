"""Takes the first token (class token) of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class SelectToken(Primitive):
    """(tokens, dim) -> (dim)."""

    fields = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """A sequence in, one vector out."""
        return (Tensor("x", (spec["tokens"], spec["dim"])),), (Tensor("y", (spec["dim"],)),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """x[:, 0] in torch."""
        return [graph.node("Gather", inputs[0], graph.constant(0), axis=1)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The first token."""
        return [inputs[0][:, 0]]
