"""Learned relative positions inside attention (Shaw et al. 2018; in two dimensions as iRPE and AutoFormer have them).

A vector r per row distance and one per column distance, clipped at `reach`, the same for all heads; the first row of each
table belongs to the class token. form=keys adds q . r / sqrt(head_dim) to the scores, form=values adds to the output what the
shares mix of r. Runtimes fold the tables to (tokens, tokens, head_dim) values, as the published code does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class RelativePosition(Primitive):
    """keys: scores (heads, tokens, tokens) + those of queries (heads, tokens, head_dim); values: outputs + those of shares."""

    fields = {"heads": (), "height": (), "width": (), "head_dim": (), "reach": (), "form": ("keys", "values")}

    def signature(self, spec: OpSpec) -> Signature:
        """What is added to, and what positions are multiplied by; the first one's shape out."""
        tokens = spec["height"] * spec["width"] + 1
        square, long = (spec["heads"], tokens, tokens), (spec["heads"], tokens, spec["head_dim"])
        first, second = (square, long) if spec["form"] == "keys" else (long, square)
        return (Tensor("x", first), Tensor("by", second)), (Tensor("y", first),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """A table for each direction."""
        shape = (2 * spec["reach"] + 2, spec["head_dim"])
        return tuple(
            Parameter(name, shape, ("", "head_dim"), fan_in=spec["head_dim"], table=True) for name in ("vertical", "horizontal")
        )

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates: heads * tokens^2 * head_dim; an addition per value, scaling folded into the queries."""
        heads, head_dim, tokens = spec["heads"], spec["head_dim"], spec["height"] * spec["width"] + 1
        long = heads * tokens * head_dim
        added = heads * tokens * tokens + long if spec["form"] == "keys" else long
        return Work(long * tokens, added, 2 * (2 * spec["reach"] + 2) * head_dim)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """For every token one product of all heads with its positions."""
        keys, by = spec["form"] == "keys", inputs[1]
        rows = [
            graph.node("Gather", graph.parameter(prefix, parameter), graph.constant(places), axis=0)
            for parameter, places in zip(
                self.parameters(spec), _distances(spec["height"], spec["width"], spec["reach"]), strict=True
            )
        ]
        positions = graph.node("Add", *rows)
        if keys:
            positions = graph.node("Transpose", positions, perm=[0, 2, 1])
            by = graph.node("Mul", by, graph.constant(spec["head_dim"] ** -0.5, np.float32))
        found = graph.node("MatMul", graph.node("Transpose", by, perm=[0, 2, 1, 3]), positions)
        return [graph.node("Add", inputs[0], graph.node("Transpose", found, perm=[0, 2, 1, 3]))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The sum of both tables' rows for every pair of tokens, multiplied per query."""
        x, by = inputs
        places = _distances(spec["height"], spec["width"], spec["reach"])
        vertical, horizontal = (table[torch.from_numpy(rows)] for table, rows in zip(weights, places, strict=True))
        positions = vertical + horizontal
        if spec["form"] == "keys":
            return [x + torch.einsum("bhqd,qkd->bhqk", by * spec["head_dim"] ** -0.5, positions)]
        return [x + torch.einsum("bhqk,qkd->bhqd", by, positions)]


def _distances(height: int, width: int, reach: int) -> list[np.ndarray]:
    """Row of the table of rows, and of columns, for every pair of tokens; 0 where one is the class token."""
    found = []
    for place in np.divmod(np.arange(height * width), width):
        clipped = np.clip(place - place[:, None], -reach, reach) + reach + 1
        found.append(np.pad(clipped, ((1, 0), (1, 0))))
    return found
