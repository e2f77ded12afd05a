"""Linear layer without bias on a sequence: one MatMul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class LinearUnbiased(Primitive):
    """y = x W^T for every token."""

    fields = {"tokens": (), "in": (), "out": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """(tokens, in) -> (tokens, out)."""
        return (Tensor("x", (spec["tokens"], spec["in"])),), (Tensor("y", (spec["tokens"], spec["out"])),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Weight (out, in)."""
        return (Parameter("weight", (spec["out"], spec["in"]), ("out", "in"), fan_in=spec["in"]),)

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates: tokens * in * out."""
        return Work(spec["tokens"] * spec["in"] * spec["out"], 0, spec["in"] * spec["out"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """MatMul with the transposed weight."""
        (weight,) = self.parameters(spec)
        return [graph.node("MatMul", inputs[0], graph.parameter(prefix, weight, transpose=True))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Weights as torch has them."""
        return [torch.nn.functional.linear(inputs[0], *weights)]
