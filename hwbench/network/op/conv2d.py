"""2-D convolution with bias, square kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


def _side(size: int, spec: OpSpec) -> int:
    return int((size + 2 * spec["padding"] - spec["kernel"]) // spec["stride"] + 1)


class Conv2d(Primitive):
    """(in, height, width) -> (out, height', width'); groups = in = out is a depthwise convolution."""

    fields = dict.fromkeys(("height", "width", "in", "out", "kernel", "stride", "padding", "groups"), ())

    def signature(self, spec: OpSpec) -> Signature:
        """Output sides as torch computes them."""
        height, width = spec["height"], spec["width"]
        out = (spec["out"], _side(height, spec), _side(width, spec))
        return (Tensor("x", (spec["in"], height, width)),), (Tensor("y", out),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Weight (out, in / groups, kernel, kernel) and bias."""
        per_group, kernel = spec["in"] // spec["groups"], spec["kernel"]
        fan_in = per_group * kernel * kernel
        return (
            Parameter("weight", (spec["out"], per_group, kernel, kernel), ("out", "in", "kernel", "kernel"), fan_in=fan_in),
            Parameter("bias", (spec["out"],), ("out",), fan_in=fan_in),
        )

    def work(self, spec: OpSpec) -> Work:
        """One multiply-accumulate per weight and output position."""
        weight, bias = self.parameters(spec)
        positions = _side(spec["height"], spec) * _side(spec["width"], spec)
        return Work(weight.size * positions, 0, weight.size + bias.size)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        weight, bias = (graph.parameter(prefix, p) for p in self.parameters(spec))
        kernel, stride, padding = spec["kernel"], spec["stride"], spec["padding"]
        return [
            graph.node(
                "Conv", inputs[0], weight, bias,
                kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4, group=spec["groups"],
            )
        ]  # fmt: skip

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Weights as torch has them."""
        return [torch.nn.functional.conv2d(inputs[0], *weights, spec["stride"], spec["padding"], 1, spec["groups"])]
