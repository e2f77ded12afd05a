"""Average over the neighbourhood of every position, the map keeps its size; at the border only what lies inside counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class AveragePoolSame(Primitive):
    """Neighbourhoods of kernel x kernel, kernel odd; AvgPool2d(kernel, 1, kernel // 2, count_include_pad=False) in torch."""

    fields = {"channels": (), "height": (), "width": (), "kernel": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Same shape in and out."""
        shape = (spec["channels"], spec["height"], spec["width"])
        return (Tensor("x", shape),), (Tensor("y", shape),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value of a neighbourhood."""
        return Work(0, spec["channels"] * spec["height"] * spec["width"] * spec["kernel"] ** 2)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        kernel = spec["kernel"]
        return [
            graph.node(
                "AveragePool", inputs[0],
                kernel_shape=[kernel] * 2, strides=[1, 1], pads=[kernel // 2] * 4, count_include_pad=0,
            )
        ]  # fmt: skip

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """What lies outside does not count."""
        kernel = spec["kernel"]
        return [torch.nn.functional.avg_pool2d(inputs[0], kernel, 1, kernel // 2, count_include_pad=False)]
