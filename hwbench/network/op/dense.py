"""Linear layer with bias on a single vector (a head's last layer): Gemm, as torch exports 2-D linear layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class Dense(Primitive):
    """y = x W^T + b for one vector."""

    fields = {"in": (), "out": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """(in) -> (out)."""
        return (Tensor("x", (spec["in"],)),), (Tensor("y", (spec["out"],)),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Weight (out, in) and bias."""
        return (
            Parameter("weight", (spec["out"], spec["in"]), ("out", "in"), fan_in=spec["in"]),
            Parameter("bias", (spec["out"],), ("out",), fan_in=spec["in"]),
        )

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates: in * out; the bias starts the sum."""
        return Work(spec["in"] * spec["out"], 0, (spec["in"] + 1) * spec["out"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Gemm with torch's weight layout."""
        weight, bias = (graph.parameter(prefix, p) for p in self.parameters(spec))
        return [graph.node("Gemm", inputs[0], weight, bias, transB=1)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Weights as torch has them."""
        return [torch.nn.functional.linear(inputs[0], *weights)]
