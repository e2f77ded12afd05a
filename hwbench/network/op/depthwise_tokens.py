"""Depthwise convolution along a sequence, without bias: every channel sees `kernel` neighbouring tokens."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Elementwise, Parameter, Work
from hwbench.network.spec import OpSpec


class DepthwiseTokens(Elementwise):
    """(tokens, dim) in, the same out; zeros beyond the ends."""

    fields = {"tokens": (), "dim": (), "kernel": ()}

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Weight (dim, 1, kernel), as of a torch Conv1d."""
        return (Parameter("weight", (spec["dim"], 1, spec["kernel"]), ("dim", "", "kernel"), fan_in=spec["kernel"]),)

    def work(self, spec: OpSpec) -> Work:
        """One multiply-accumulate per weight and token."""
        weights = spec["dim"] * spec["kernel"]
        return Work(weights * spec["tokens"], 0, weights)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """Channels first and back, as torch does it."""
        (weight,) = self.parameters(spec)
        kernel, first = spec["kernel"], graph.node("Transpose", inputs[0], perm=[0, 2, 1])
        weights = graph.parameter(prefix, weight)
        mixed = graph.node("Conv", first, weights, kernel_shape=[kernel], pads=[kernel // 2] * 2, group=spec["dim"])
        return [graph.node("Transpose", mixed, perm=[0, 2, 1])]
