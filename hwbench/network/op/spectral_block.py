"""A linear layer and a fixed transform of every head in place of attention, as NAS-Bench-BERT has it: no residual, no norm."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class SpectralBlock(Block):
    """(tokens, dim) -> (tokens, dim), dim = heads * head_dim."""

    fields = {"tokens": (), "heads": (), "head_dim": (), "form": ("dft", "dct")}

    def expand(self, spec: OpSpec) -> Network:
        """linear, split, transform, merge."""
        tokens, heads, head_dim = (spec[d] for d in ("tokens", "heads", "head_dim"))
        dim = heads * head_dim
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        x = net.add("input", OpSpec.of("linear", tokens=tokens, **{"in": dim}, out=dim), "x")
        x = net.add("split", OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=head_dim, parts=1), x)
        x = net.add(
            "transform", OpSpec.of("spectral_transform", heads=heads, tokens=tokens, head_dim=head_dim, form=spec["form"]), x
        )
        return net.build(net.add("merge", OpSpec.of("merge_heads", tokens=tokens, heads=heads, head_dim=head_dim), x))
