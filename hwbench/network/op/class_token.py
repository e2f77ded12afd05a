"""Puts a learned token before the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class ClassToken(Primitive):
    """(tokens - 1, dim) -> (tokens, dim)."""

    fields = {"tokens": (), "dim": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """One token more out than in."""
        tokens, dim = spec["tokens"], spec["dim"]
        return (Tensor("x", (tokens - 1, dim)),), (Tensor("y", (tokens, dim)),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """The token."""
        return (Parameter("token", (1, 1, spec["dim"]), ("", "", "dim"), fan_in=spec["dim"], table=True),)

    def work(self, spec: OpSpec) -> Work:
        """Moves data only."""
        return Work(0, 0, spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Expand to the batch, then concatenate."""
        (parameter,) = self.parameters(spec)
        token = graph.parameter(prefix, parameter)
        if graph.batch > 1:
            token = graph.node("Expand", token, graph.constant([graph.batch, 1, spec["dim"]]))
        return [graph.node("Concat", token, inputs[0], axis=1)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The token before every sample's own."""
        return [torch.cat([weights[0].expand(len(inputs[0]), -1, -1), inputs[0]], 1)]
