"""Puts a token before the others: (dim), (tokens - 1, dim) -> (tokens, dim). Copies only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class PrependToken(Primitive):
    """cat((token[:, None], x), dim=1) in torch."""

    fields = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """A vector and a sequence in, a sequence out."""
        tokens, dim = spec["tokens"], spec["dim"]
        return (Tensor("token", (dim,)), Tensor("x", (tokens - 1, dim))), (Tensor("y", (tokens, dim)),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Two nodes."""
        return [graph.node("Concat", graph.node("Unsqueeze", inputs[0], graph.constant([1])), inputs[1], axis=1)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The token before every sample's own."""
        return [torch.cat([inputs[0].unsqueeze(1), inputs[1]], 1)]
