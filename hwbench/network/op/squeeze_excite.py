"""Squeeze-and-excitation (Hu et al. 2018), MobileNetV3's form: ReLU inside, hard sigmoid as the gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Parameter, Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class SqueezeExcite(Primitive):
    """x scaled per channel by a gate made of the channels' means: `channels` -> `reduced` -> `channels`."""

    fields = {"channels": (), "height": (), "width": (), "reduced": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["channels"], spec["height"], spec["width"])
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def parameters(self, spec: OpSpec) -> tuple[Parameter, ...]:
        """Two 1 x 1 convolutions with bias."""
        channels, reduced = spec["channels"], spec["reduced"]
        return (
            Parameter("reduce.weight", (reduced, channels, 1, 1), ("reduced", "channels", "", ""), fan_in=channels),
            Parameter("reduce.bias", (reduced,), ("reduced",), fan_in=channels),
            Parameter("expand.weight", (channels, reduced, 1, 1), ("channels", "reduced", "", ""), fan_in=reduced),
            Parameter("expand.bias", (channels,), ("channels",), fan_in=reduced),
        )

    def work(self, spec: OpSpec) -> Work:
        """The convolutions, and 2 per value of the map (mean, scaling) plus 1 and 3 per activation."""
        channels, reduced = spec["channels"], spec["reduced"]
        other = 2 * channels * spec["height"] * spec["width"] + reduced + 3 * channels
        return Work(2 * channels * reduced, other, 2 * channels * reduced + channels + reduced)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """The nodes torch writes for mean((2, 3)), Conv2d, ReLU, Conv2d, Hardsigmoid and the product."""
        weights = [graph.parameter(prefix, p) for p in self.parameters(spec)]
        mean = graph.node("ReduceMean", inputs[0], graph.constant([2, 3]), keepdims=1)
        reduced = graph.node("Relu", graph.node("Conv", mean, *weights[:2], kernel_shape=[1, 1]))
        gate = graph.node("HardSigmoid", graph.node("Conv", reduced, *weights[2:], kernel_shape=[1, 1]), alpha=1 / 6, beta=0.5)
        return [graph.node("Mul", inputs[0], gate)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Mean, two 1 x 1 convolutions, gate."""
        functional = torch.nn.functional
        reduced = functional.conv2d(inputs[0].mean((2, 3), keepdim=True), *weights[:2]).relu()
        return [inputs[0] * functional.hardsigmoid(functional.conv2d(reduced, *weights[2:]))]
