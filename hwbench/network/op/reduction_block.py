"""Residual block that halves the map: twice ReLU and a 3 x 3 convolution, beside a pooled and projected shortcut.

Stands between the stages of NAS-Bench-201. Batch norms are folded into the convolutions, as deployed.
"""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class ReductionBlock(Block):
    """(in, height, width) -> (out, height / 2, width / 2), sides even."""

    fields = dict.fromkeys(("height", "width", "in", "out"), ())

    def expand(self, spec: OpSpec) -> Network:
        """Two convolutions, the shortcut, their sum."""
        before, narrow, wide = {"height": spec["height"], "width": spec["width"]}, spec["in"], spec["out"]
        after = {side: size // 2 for side, size in before.items()}
        net = NetworkBuilder(Tensor("x", (narrow, *before.values())))

        def conv(width_in: int, kernel: int, stride: int, sides: dict[str, int]) -> OpSpec:
            dims = {"in": width_in, "out": wide, "kernel": kernel, "stride": stride, "padding": kernel // 2, "groups": 1}
            return OpSpec.of("conv2d", **dims, **sides)

        y = net.add("activation_a", OpSpec.of("map_relu", channels=narrow, **before), "x")
        y = net.add("conv_a", conv(narrow, 3, 2, before), y)
        y = net.add("activation_b", OpSpec.of("map_relu", channels=wide, **after), y)
        y = net.add("conv_b", conv(wide, 3, 1, after), y)
        shortcut = net.add("pool", OpSpec.of("average_pool", channels=narrow, stride=2, **before), "x")
        shortcut = net.add("shortcut", conv(narrow, 1, 1, after), shortcut)
        return net.build(net.add("residual", OpSpec.of("map_add", channels=wide, **after), shortcut, y))
