"""Adds the first `tokens` rows of a learned position table of `length` rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Elementwise, Parameter, Work
from hwbench.network.spec import OpSpec


class Position(Elementwise):
    """x + table[:tokens]."""

    fields = {"tokens": (), "length": (), "dim": ()}

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """The table."""
        return (Parameter("weight", (spec["length"], spec["dim"]), ("length", "dim"), fan_in=spec["dim"], table=True),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        values = spec["tokens"] * spec["dim"]
        return Work(0, values, values)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The slice is of a constant, so runtimes fold it away."""
        (parameter,) = self.parameters(spec)
        table = graph.parameter(prefix, parameter)
        if spec["tokens"] != spec["length"]:
            table = graph.node("Slice", table, graph.constant([0]), graph.constant([spec["tokens"]]), graph.constant([0]))
        return [graph.node("Add", inputs[0], table)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The first rows of the table."""
        return [inputs[0] + weights[0][: spec["tokens"]]]
