"""Convolution (batch norm folded into it, as deployed) and SiLU: the stem of NASViT and its like."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class ConvBlock(Block):
    """(in, height, width) -> (out, height / stride, width / stride), rounded up."""

    fields = dict.fromkeys(("height", "width", "in", "out", "kernel", "stride"), ())

    def expand(self, spec: OpSpec) -> Network:
        """conv2d, map_silu."""
        height, width, kernel, stride = (spec[d] for d in ("height", "width", "kernel", "stride"))
        net = NetworkBuilder(Tensor("x", (spec["in"], height, width)))
        conv = OpSpec.of(
            "conv2d", **{"in": spec["in"]}, out=spec["out"], height=height, width=width,
            kernel=kernel, stride=stride, padding=kernel // 2, groups=1,
        )  # fmt: skip
        x = net.add("conv", conv, "x")
        silu = OpSpec.of("map_silu", channels=spec["out"], height=-(-height // stride), width=-(-width // stride))
        return net.build(net.add("activation", silu, x))
