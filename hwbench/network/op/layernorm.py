"""Layer normalisation over the channels of every token (epsilon 1e-6, as ViT; BERT's 1e-12 costs the same)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Elementwise, Parameter, Work
from hwbench.network.spec import OpSpec

EPSILON = 1e-6


class Layernorm(Elementwise):
    """(tokens, dim) to zero mean and unit spread per token, then scale and shift."""

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Scale and shift."""
        return (
            Parameter("weight", (spec["dim"],), ("dim",), init="ones"),
            Parameter("bias", (spec["dim"],), ("dim",), init="zeros"),
        )

    def work(self, spec: OpSpec) -> Work:
        """8 per value: two sums, difference, square, division, scale, shift, mean."""
        return Work(0, 8 * spec["tokens"] * spec["dim"], 2 * spec["dim"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node since opset 17."""
        weight, bias = (graph.parameter(prefix, p) for p in self.parameters(spec))
        return [graph.node("LayerNormalization", inputs[0], weight, bias, axis=-1, epsilon=EPSILON)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """With the same epsilon."""
        return [torch.nn.functional.layer_norm(inputs[0], (spec["dim"],), *weights, EPSILON)]
