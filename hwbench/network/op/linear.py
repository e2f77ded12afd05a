"""Linear layer with bias on a sequence: MatMul + Add, as torch exports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class Linear(Primitive):
    """y = x W^T + b for every token."""

    fields = {"tokens": (), "in": (), "out": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """(tokens, in) -> (tokens, out)."""
        return (Tensor("x", (spec["tokens"], spec["in"])),), (Tensor("y", (spec["tokens"], spec["out"])),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Weight (out, in) and bias."""
        return (
            Parameter("weight", (spec["out"], spec["in"]), ("out", "in"), fan_in=spec["in"]),
            Parameter("bias", (spec["out"],), ("out",), fan_in=spec["in"]),
        )

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates: tokens * in * out; the bias starts the sum."""
        return Work(spec["tokens"] * spec["in"] * spec["out"], 0, (spec["in"] + 1) * spec["out"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """MatMul with the transposed weight, then Add."""
        weight, bias = self.parameters(spec)
        product = graph.node("MatMul", inputs[0], graph.parameter(prefix, weight, transpose=True))
        return [graph.node("Add", product, graph.parameter(prefix, bias))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Weights as torch has them."""
        return [torch.nn.functional.linear(inputs[0], *weights)]
