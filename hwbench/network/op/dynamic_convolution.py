"""Dynamic convolution (Wu et al. 2019): every token mixes its neighbours by weights that come with it.

y[head, t] = sum over j of weights[head, t, j] * x[head, t + j - kernel // 2], zeros beyond the ends.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        """Multiply-accumulates: heads * tokens * head_dim * kernel."""
        return Work(spec["heads"] * spec["tokens"] * spec["head_dim"] * spec["kernel"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Neighbours are gathered, as torch's unfold does, and multiplied by the weights."""
        kernel = spec["kernel"]
        side = [0, 0, kernel // 2, 0]
        padded = graph.node("Pad", inputs[0], graph.constant(side + side))
        place = np.arange(spec["tokens"])[:, None] + np.arange(kernel)
        neighbours = graph.node("Gather", padded, graph.constant(place), axis=2)
        row = graph.node("Unsqueeze", inputs[1], graph.constant([3]))
        return [graph.node("Squeeze", graph.node("MatMul", row, neighbours), graph.constant([3]))]
