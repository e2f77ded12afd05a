"""Cuts projected tokens into heads: (tokens, parts * heads * head_dim) -> parts x (heads, tokens, head_dim).

No arithmetic, but real copies. parts = 3 is timm's fused q-k-v, parts = 1 a separate projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class SplitHeads(Primitive):
    """Reshape, transpose and, for several parts, split."""

    fields = {"tokens": (), "heads": (), "head_dim": (), "parts": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """One projection in, one tensor per part out."""
        tokens, heads, head_dim, parts = (spec[d] for d in ("tokens", "heads", "head_dim", "parts"))
        outputs = tuple(Tensor(f"part{i}", (heads, tokens, head_dim)) for i in range(parts))
        return (Tensor("x", (tokens, parts * heads * head_dim)),), outputs

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The nodes torch writes for view + permute + unbind."""
        tokens, heads, head_dim, parts = (spec[d] for d in ("tokens", "heads", "head_dim", "parts"))
        if parts == 1:
            shaped = graph.node("Reshape", inputs[0], graph.constant([graph.batch, tokens, heads, head_dim]))
            return [graph.node("Transpose", shaped, perm=[0, 2, 1, 3])]
        shaped = graph.node("Reshape", inputs[0], graph.constant([graph.batch, tokens, parts, heads, head_dim]))
        moved = graph.node("Transpose", shaped, perm=[2, 0, 3, 1, 4])
        pieces = graph.split("Split", moved, outputs=parts, axis=0, num_outputs=parts)
        return [graph.node("Squeeze", piece, graph.constant([0])) for piece in pieces]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Parts, each cut into heads."""
        parts = inputs[0].unflatten(-1, (spec["parts"], spec["heads"], spec["head_dim"]))
        return [part.transpose(1, 2) for part in parts.unbind(2)]
