"""Two linear layers with an activation, residual and layer norm (pre: ViT; post: BERT)."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class FfnBlock(Block):
    """(tokens, dim) -> (tokens, hidden) -> (tokens, dim)."""

    fields = {"tokens": (), "dim": (), "hidden": (), "activation": ("gelu", "relu", "silu"), "norm": ("pre", "post")}

    def expand(self, spec: OpSpec) -> Network:
        """linear, activation, linear, residual; the norm first or last."""
        tokens, dim, hidden = spec["tokens"], spec["dim"], spec["hidden"]
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        norm = OpSpec.of("layernorm", tokens=tokens, dim=dim)
        y = net.add("norm", norm, "x") if spec["norm"] == "pre" else "x"
        y = net.add("up", OpSpec.of("linear", tokens=tokens, **{"in": dim}, out=hidden), y)
        y = net.add("activation", OpSpec.of(spec["activation"], tokens=tokens, dim=hidden), y)
        y = net.add("down", OpSpec.of("linear", tokens=tokens, **{"in": hidden}, out=dim), y)
        y = net.add("residual", OpSpec.of("add", tokens=tokens, dim=dim), "x", y)
        return net.build(net.add("norm", norm, y) if spec["norm"] == "post" else y)
