"""BERT's stem: word, position and segment embeddings (segment 0 for every token), then layer normalisation."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class TokenEmbedding(Block):
    """ids (tokens) -> (tokens, dim)."""

    fields = {"tokens": (), "vocabulary": (), "length": (), "dim": ()}

    def expand(self, spec: OpSpec) -> Network:
        """embedding, position, segment, layernorm."""
        tokens, vocabulary, length, dim = (spec[d] for d in ("tokens", "vocabulary", "length", "dim"))
        net = NetworkBuilder(Tensor("ids", (tokens,), "int64", high=vocabulary))
        x = net.add("word", OpSpec.of("embedding", tokens=tokens, vocabulary=vocabulary, dim=dim), "ids")
        x = net.add("segment", OpSpec.of("segment", tokens=tokens, dim=dim), x)
        x = net.add("position", OpSpec.of("position", tokens=tokens, length=length, dim=dim), x)
        return net.build(net.add("norm", OpSpec.of("layernorm", tokens=tokens, dim=dim), x))
