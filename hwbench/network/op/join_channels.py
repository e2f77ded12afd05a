"""Puts the channels of two sequences side by side. Copies only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class JoinChannels(Primitive):
    """(tokens, first), (tokens, second) -> (tokens, first + second)."""

    fields = {"tokens": (), "first": (), "second": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Two in, one out."""
        tokens, first, second = spec["tokens"], spec["first"], spec["second"]
        return (Tensor("a", (tokens, first)), Tensor("b", (tokens, second))), (Tensor("y", (tokens, first + second)),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        return [graph.node("Concat", *inputs, axis=2)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Side by side."""
        return [torch.cat(list(inputs), 2)]
