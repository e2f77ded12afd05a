"""Dynamic convolution (Wu et al. 2019): every token mixes its neighbours by weights that come with it.

y[head, t] = sum over j of weights[head, t, j] * x[head, t + j - kernel // 2], zeros beyond the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class DynamicConvolution(Primitive):
    """(heads, tokens, head_dim) and weights (heads, tokens, kernel) -> (heads, tokens, head_dim)."""

    fields = {"heads": (), "tokens": (), "head_dim": (), "kernel": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Values and weights in, values out."""
        heads, tokens = spec["heads"], spec["tokens"]
        shape = (heads, tokens, spec["head_dim"])
        return (Tensor("x", shape), Tensor("weights", (heads, tokens, spec["kernel"]))), (Tensor("y", shape),)

    def work(self, spec: OpSpec) -> Work:
        """A product and an addition per value and neighbour."""
        return Work(0, spec["heads"] * spec["tokens"] * spec["head_dim"] * (2 * spec["kernel"] - 1))

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """A sum over shifted copies: plain nodes of four axes, which every runtime has."""
        tokens, kernel = spec["tokens"], spec["kernel"]
        zeros = graph.constant(np.zeros((graph.batch, spec["heads"], kernel // 2, spec["head_dim"])), np.float32)
        padded = graph.node("Concat", zeros, inputs[0], zeros, axis=2)
        total = ""
        for j in range(kernel):
            shifted = _part(graph, padded, 2, j, j + tokens)
            term = graph.node("Mul", shifted, _part(graph, inputs[1], 3, j, j + 1))
            total = graph.node("Add", total, term) if total else term
        return [total]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Every token's neighbours side by side, zeros beyond the ends."""
        x, shares = inputs
        reach = spec["kernel"] // 2
        windows = torch.nn.functional.pad(x, (0, 0, reach, reach)).unfold(2, spec["kernel"], 1)
        return [(windows * shares.unsqueeze(3)).sum(-1)]


def _part(graph: Graph, x: str, axis: int, start: int, end: int) -> str:
    return graph.node("Slice", x, *(graph.constant([n]) for n in (start, end, axis)))
