"""A feed-forward block with several hidden layers of one width, each with GELU; residual and post-norm (FlexiBERT)."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class StackedFfnBlock(Block):
    """(tokens, dim) -> (tokens, hidden), `layers` times -> (tokens, dim)."""

    fields = {"tokens": (), "dim": (), "hidden": (), "layers": ()}

    def expand(self, spec: OpSpec) -> Network:
        """(linear, activation) for every layer, linear, residual, norm."""
        tokens, dim, hidden = spec["tokens"], spec["dim"], spec["hidden"]
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        y, width = "x", dim
        for i in range(spec["layers"]):
            y = net.add(f"up{i}", OpSpec.of("linear", tokens=tokens, **{"in": width}, out=hidden), y)
            y, width = net.add(f"activation{i}", OpSpec.of("gelu", tokens=tokens, dim=hidden), y), hidden
        y = net.add("down", OpSpec.of("linear", tokens=tokens, **{"in": width}, out=dim), y)
        y = net.add("residual", OpSpec.of("add", tokens=tokens, dim=dim), "x", y)
        return net.build(net.add("norm", OpSpec.of("layernorm", tokens=tokens, dim=dim), y))
