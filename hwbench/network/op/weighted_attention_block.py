"""Self-attention whose scores are q W k^T (weighted multiplicative attention, Luong et al. 2015), with residual and post-norm.

One W for all heads together, without bias; otherwise as an attention_block with separate projections.
"""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class WeightedAttentionBlock(Block):
    """(tokens, dim) -> (tokens, dim)."""

    fields = {"tokens": (), "dim": (), "heads": (), "head_dim": ()}

    def expand(self, spec: OpSpec) -> Network:
        """Projections, the query's weight, heads, scores, softmax, mix, projection, residual, norm."""
        tokens, dim, heads, head_dim = (spec[d] for d in ("tokens", "dim", "heads", "head_dim"))
        inner = heads * head_dim
        net = NetworkBuilder(Tensor("x", (tokens, dim)))

        def linear(width_in: int, width_out: int) -> OpSpec:
            return OpSpec.of("linear", tokens=tokens, **{"in": width_in}, out=width_out)

        def split(name: str, x: str) -> str:
            return net.add(name, OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=head_dim, parts=1), x)

        query = net.add("query", linear(dim, inner), "x")
        query = net.add("weight", OpSpec.of("linear_unbiased", tokens=tokens, **{"in": inner}, out=inner), query)
        q = split("split_query", query)
        k, v = (split(f"split_{name}", net.add(name, linear(dim, inner), "x")) for name in ("key", "value"))
        scores = net.add("scores", OpSpec.of("matmul", heads=heads, m=tokens, k=head_dim, n=tokens, form="scores"), q, k)
        share = net.add("softmax", OpSpec.of("softmax", heads=heads, m=tokens, n=tokens), scores)
        y = net.add("mix", OpSpec.of("matmul", heads=heads, m=tokens, k=tokens, n=head_dim, form="plain"), share, v)
        y = net.add("merge", OpSpec.of("merge_heads", tokens=tokens, heads=heads, head_dim=head_dim), y)
        y = net.add("residual", OpSpec.of("add", tokens=tokens, dim=dim), "x", net.add("projection", linear(inner, dim), y))
        return net.build(net.add("norm", OpSpec.of("layernorm", tokens=tokens, dim=dim), y))
