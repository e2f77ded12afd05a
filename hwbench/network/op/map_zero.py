"""Zeros in place of a feature map: what a cell without a way through gives on. A product, as NAS-Bench-201's code has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.network.onnx_writer import Graph
from hwbench.network.op.base import OnMap, Work
from hwbench.network.spec import OpSpec


class MapZero(OnMap):
    """0 * x."""

    def work(self, spec: OpSpec) -> Work:
        """1 per value."""
        return Work(0, spec["channels"] * spec["height"] * spec["width"])

    def emit(self, graph: Graph, spec: OpSpec, inputs: Sequence[str], prefix: str) -> list[str]:
        """One node."""
        return [graph.node("Mul", inputs[0], graph.constant(0.0, np.float32))]

    def compute(self, torch: Any, spec: OpSpec, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """A product, so that gradients are zero, too."""
        return [inputs[0] * 0.0]
