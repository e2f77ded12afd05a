"""Joins heads again: (heads, tokens, head_dim) -> (tokens, heads * head_dim). Copies only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class MergeHeads(Primitive):
    """Transpose and reshape."""

    fields = {"tokens": (), "heads": (), "head_dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Heads in, tokens out."""
        tokens, heads, head_dim = spec["tokens"], spec["heads"], spec["head_dim"]
        return (Tensor("x", (heads, tokens, head_dim)),), (Tensor("y", (tokens, heads * head_dim)),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Two nodes."""
        moved = graph.node("Transpose", inputs[0], perm=[0, 2, 1, 3])
        return [graph.node("Reshape", moved, graph.constant([graph.batch, spec["tokens"], spec["heads"] * spec["head_dim"]]))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Heads side by side."""
        return [inputs[0].transpose(1, 2).flatten(2)]
