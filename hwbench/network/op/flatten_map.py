"""Turns a feature map into one vector: (channels, height, width) -> (channels * height * width). Moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwbench.network.graph import Tensor
from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import Primitive, Signature, Work
from hwbench.network.spec import OpSpec


class FlattenMap(Primitive):
    """flatten(1) in torch."""

    fields = {"channels": (), "height": (), "width": ()}

    def signature(self, spec: OpSpec) -> Signature:
        """Map in, vector out."""
        shape = (spec["channels"], spec["height"], spec["width"])
        return (Tensor("x", shape),), (Tensor("y", (shape[0] * shape[1] * shape[2],)),)

    def work(self, spec: OpSpec) -> Work:
        """Nothing."""
        return Work()

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        values = spec["channels"] * spec["height"] * spec["width"]
        return [graph.node("Reshape", inputs[0], graph.constant([graph.batch, values]))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """One row per sample."""
        return [inputs[0].flatten(1)]
