"""Depthwise convolution along a sequence, without bias: every channel sees `kernel` neighbouring tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Elementwise, Parameter, Work
from hwbench.network.spec import OpSpec


class DepthwiseTokens(Elementwise):
    """(tokens, dim) in, the same out; zeros beyond the ends."""

    fields = {"tokens": (), "dim": (), "kernel": ()}

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Weight (dim, 1, kernel, 1), as of a torch Conv2d on maps as high as there are tokens and one wide."""
        return (Parameter("weight", (spec["dim"], 1, spec["kernel"], 1), ("dim", "", "kernel", ""), fan_in=spec["kernel"]),)

    def work(self, spec: OpSpec) -> Work:
        """One multiply-accumulate per weight and token."""
        weights = spec["dim"] * spec["kernel"]
        return Work(weights * spec["tokens"], 0, weights)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """As a map and back: every runtime convolves maps, few convolve sequences."""
        (weight,) = self.parameters(spec)
        tokens, dim, kernel = (spec[d] for d in ("tokens", "dim", "kernel"))
        x = graph.node(
            "Reshape", graph.node("Transpose", inputs[0], perm=[0, 2, 1]), graph.constant([graph.batch, dim, tokens, 1])
        )
        sides = {"kernel_shape": [kernel, 1], "strides": [1, 1], "pads": [kernel // 2, 0] * 2}
        x = graph.node("Conv", x, graph.parameter(prefix, weight), **sides, group=dim)
        return [graph.node("Transpose", graph.node("Reshape", x, graph.constant([graph.batch, dim, tokens])), perm=[0, 2, 1])]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The same, tokens along the height of a map."""
        x = inputs[0].mT.unsqueeze(-1)
        padding = (spec["kernel"] // 2, 0)
        return [torch.nn.functional.conv2d(x, weights[0], padding=padding, groups=spec["dim"]).squeeze(-1).mT]
