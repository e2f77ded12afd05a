"""Average pooling over stride x stride squares; an odd side gets a border of zeros, which count, as torch counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


def _side(size: int, stride: int) -> int:
    return (size + 2 * (size % 2) - stride) // stride + 1


class AveragePool(Primitive):
    """(channels, height, width) -> (channels, height', width')."""

    fields = {"channels": (), "height": (), "width": (), "stride": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Sides halved and rounded up for stride 2."""
        channels, height, width, stride = (spec[d] for d in ("channels", "height", "width", "stride"))
        out = (channels, _side(height, stride), _side(width, stride))
        return (Tensor("x", (channels, height, width)),), (Tensor("y", out),)

    def work(self, spec: OpSpec) -> Work:
        """1 per value of a square."""
        stride = spec["stride"]
        positions = _side(spec["height"], stride) * _side(spec["width"], stride)
        return Work(0, spec["channels"] * positions * stride * stride)

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        pads = [spec["height"] % 2, spec["width"] % 2] * 2
        sides = [spec["stride"]] * 2
        return [graph.node("AveragePool", inputs[0], kernel_shape=sides, strides=sides, pads=pads, count_include_pad=1)]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """Zeros at the border count."""
        sides = (spec["height"] % 2, spec["width"] % 2)
        return [torch.nn.functional.avg_pool2d(inputs[0], spec["stride"], spec["stride"], sides, count_include_pad=True)]
