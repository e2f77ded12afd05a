"""PiT's pooling (Heo et al. 2021): patches by a strided, widening depthwise convolution, the class token by a linear layer."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec

KERNEL, STRIDE = 3, 2


class TokenPoolBlock(Block):
    """(height * width + 1, in) -> (height' * width' + 1, out), every side halved; `out` is a multiple of `in`."""

    fields = {"height": (), "width": (), "in": (), "out": ()}

    def expand(self, spec: OpSpec) -> Network:
        """Apart, each on its way, together."""
        height, width, dim, out = (spec[d] for d in ("height", "width", "in", "out"))
        tokens = height * width + 1
        down = {"height": (height + 1) // STRIDE, "width": (width + 1) // STRIDE}
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        token = net.add("select", OpSpec.of("select_token", tokens=tokens, dim=dim), "x")
        token = net.add("linear", OpSpec.of("dense", **{"in": dim}, out=out), token)
        x = net.add("drop", OpSpec.of("drop_token", tokens=tokens, dim=dim), "x")
        x = net.add("to_map", OpSpec.of("unflatten_patches", height=height, width=width, dim=dim), x)
        sizes = {"kernel": KERNEL, "stride": STRIDE, "padding": KERNEL // 2, "groups": dim}
        x = net.add("conv", OpSpec.of("conv2d", height=height, width=width, **{"in": dim}, out=out, **sizes), x)
        x = net.add("to_tokens", OpSpec.of("flatten_patches", dim=out, **down), x)
        tokens = down["height"] * down["width"] + 1
        return net.build(net.add("prepend", OpSpec.of("prepend_token", tokens=tokens, dim=out), token, x))
