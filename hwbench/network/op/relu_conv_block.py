"""ReLU and convolution (batch norm folded into it, as deployed): the `nor_conv` of NAS-Bench-201."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class ReluConvBlock(Block):
    """(in, height, width) -> (out, height / stride, width / stride), rounded up."""

    fields = dict.fromkeys(("height", "width", "in", "out", "kernel", "stride"), ())

    def expand(self, spec: OpSpec) -> Network:
        """map_relu, conv2d."""
        height, width, kernel = spec["height"], spec["width"], spec["kernel"]
        net = NetworkBuilder(Tensor("x", (spec["in"], height, width)))
        x = net.add("activation", OpSpec.of("map_relu", channels=spec["in"], height=height, width=width), "x")
        conv = OpSpec.of(
            "conv2d", **{"in": spec["in"]}, out=spec["out"], height=height, width=width,
            kernel=kernel, stride=spec["stride"], padding=kernel // 2, groups=1,
        )  # fmt: skip
        return net.build(net.add("conv", conv, x))
