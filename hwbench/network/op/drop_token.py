"""Leaves the first token (class token) of a sequence out: (tokens, dim) -> (tokens - 1, dim). Copies only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class DropToken(Primitive):
    """x[:, 1:] in torch."""

    fields = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """One token less out than in."""
        tokens, dim = spec["tokens"], spec["dim"]
        return (Tensor("x", (tokens, dim)),), (Tensor("y", (tokens - 1, dim)),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        ends = (graph.constant([n]) for n in (1, spec["tokens"], 1))
        return [graph.node("Slice", inputs[0], *ends)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """All but the first."""
        return [inputs[0][:, 1:]]
