"""Adds the embedding of segment 0 out of two (BERT's token types, when a request is a single text)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Elementwise, Parameter, Work
from hwbench.network.spec import OpSpec


class Segment(Elementwise):
    """x + table[0]."""

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Two rows, of which the first is used."""
        return (Parameter("weight", (2, spec["dim"]), ("", "dim"), fan_in=spec["dim"], table=True),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        return Work(0, spec["tokens"] * spec["dim"], spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The row is picked from a constant, so runtimes fold it away."""
        (parameter,) = self.parameters(spec)
        row = graph.node("Gather", graph.parameter(prefix, parameter), graph.constant(0), axis=0)
        return [graph.node("Add", inputs[0], row)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The row of the first segment."""
        return [inputs[0] + weights[0][0]]
