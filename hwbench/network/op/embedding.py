"""Lookup of token ids in a learned table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class Embedding(Primitive):
    """ids (tokens) -> rows (tokens, dim)."""

    fields = {"tokens": (), "vocabulary": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Ids below the vocabulary's size in, rows out."""
        ids = Tensor("ids", (spec["tokens"],), "int64", high=spec["vocabulary"])
        return (ids,), (Tensor("y", (spec["tokens"], spec["dim"])),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """The table."""
        shape = (spec["vocabulary"], spec["dim"])
        return (Parameter("weight", shape, ("vocabulary", "dim"), fan_in=spec["dim"], table=True),)

    def work(self, spec: OpSpec) -> Work:
        """No arithmetic; one row per token is read."""
        return Work(0, 0, spec["tokens"] * spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Gather on the first axis."""
        (table,) = self.parameters(spec)
        return [graph.node("Gather", graph.parameter(prefix, table), inputs[0], axis=0)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Rows of the table."""
        return [torch.nn.functional.embedding(inputs[0], weights[0])]
