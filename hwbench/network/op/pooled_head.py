"""BERT's end: first token, pooler (linear + tanh), linear layer to the classes."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class PooledHead(Block):
    """(tokens, dim) -> (classes)."""

    fields = {"tokens": (), "dim": (), "classes": ()}

    def expand(self, spec: OpSpec) -> Network:
        """select_token, dense, tanh, dense."""
        tokens, dim = spec["tokens"], spec["dim"]
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        x = net.add("select", OpSpec.of("select_token", tokens=tokens, dim=dim), "x")
        x = net.add("pooler", OpSpec.of("dense", **{"in": dim}, out=dim), x)
        x = net.add("activation", OpSpec.of("tanh", dim=dim), x)
        return net.build(net.add("classifier", OpSpec.of("dense", **{"in": dim}, out=spec["classes"]), x))
