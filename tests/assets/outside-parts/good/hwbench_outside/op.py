"""An activation that is one ONNX node: x / (1 + |x|)."""

from __future__ import annotations

from hwbench.network.op.base import Elementwise, Work


class TheirClip(Elementwise):
    """Softsign."""

    def work(self, spec):
        return Work(other_flops=2 * spec["tokens"] * spec["dim"])

    def emit(self, graph, spec, inputs, prefix):
        return [graph.node("Softsign", inputs[0])]
