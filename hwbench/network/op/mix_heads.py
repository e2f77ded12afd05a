"""Talking heads (Shazeer et al. 2020): a linear layer across the heads, for every pair of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class MixHeads(Primitive):
    """(heads, m, n) -> (heads, m, n)."""

    fields = {"heads": (), "m": (), "n": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["heads"], spec["m"], spec["n"])
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Weight (heads, heads) and bias."""
        heads = spec["heads"]
        return (
            Parameter("weight", (heads, heads), ("heads", "heads"), fan_in=heads),
            Parameter("bias", (heads,), ("heads",), fan_in=heads),
        )

    def work(self, spec: OpSpec) -> Work:
        """Multiply-accumulates: heads^2 * m * n."""
        heads = spec["heads"]
        return Work(heads * heads * spec["m"] * spec["n"], 0, heads * (heads + 1))

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """A torch Linear works on the last axis, so the heads move there and back."""
        weight, bias = self.parameters(spec)
        last = graph.node("Transpose", inputs[0], perm=[0, 2, 3, 1])
        product = graph.node("MatMul", last, graph.parameter(prefix, weight, transpose=True))
        return [graph.node("Transpose", graph.node("Add", product, graph.parameter(prefix, bias)), perm=[0, 3, 1, 2])]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """A linear map over the heads' axis."""
        mixed = torch.nn.functional.linear(inputs[0].movedim(1, -1), *weights)
        return [mixed.movedim(-1, 1)]
