"""Adds a learned value per head and relative place of two tokens to attention scores (Swin, LeViT).

The table covers a `window` x `window` map; a smaller map uses its middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


def _places(spec: OpSpec) -> np.ndarray:
    """Which row of the table a pair of positions has."""
    height, width, window = (spec[d] for d in ("height", "width", "window"))
    y, x = np.divmod(np.arange(height * width), width)
    down, right = y[:, None] - y + window - 1, x[:, None] - x + window - 1
    return np.asarray(down * (2 * window - 1) + right)


class RelativeBias(Primitive):
    """scores + table[place of one token relative to the other], (heads, tokens, tokens), tokens = height * width."""

    fields = {"heads": (), "height": (), "width": (), "window": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        tokens = spec["height"] * spec["width"]
        shape = (spec["heads"], tokens, tokens)
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """One row per relative place."""
        places = (2 * spec["window"] - 1) ** 2
        return (Parameter("table", (places, spec["heads"]), ("", "heads"), fan_in=spec["heads"], table=True),)

    def work(self, spec: OpSpec) -> Work:
        """1 per score."""
        heads, height, width = spec["heads"], spec["height"], spec["width"]
        return Work(0, heads * (height * width) ** 2, heads * (2 * height - 1) * (2 * width - 1))

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Rows are gathered from a constant, so runtimes fold all but the addition away."""
        (parameter,) = self.parameters(spec)
        rows = graph.node("Gather", graph.parameter(prefix, parameter), graph.constant(_places(spec)), axis=0)
        return [graph.node("Add", inputs[0], graph.node("Transpose", rows, perm=[2, 0, 1]))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The table's row of every pair of places."""
        rows = weights[0][torch.from_numpy(_places(spec))]
        return [inputs[0] + rows.permute(2, 0, 1)]
