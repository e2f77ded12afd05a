"""AutoFormer's self-attention: a pre-norm attention_block with fused projections and relative positions of keys and values."""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class RelativeAttentionBlock(Block):
    """(height * width + 1, dim) -> the same; the first token is the class token."""

    fields = dict.fromkeys(("height", "width", "dim", "heads", "head_dim", "reach"), ())

    def expand(self, spec: OpSpec) -> Network:
        """norm, projections, heads, scores and their positions, softmax, mix and its positions, projection, residual."""
        dim, heads, head_dim = (spec[d] for d in ("dim", "heads", "head_dim"))
        tokens, inner = spec["height"] * spec["width"] + 1, heads * head_dim
        places = {d: spec[d] for d in ("heads", "height", "width", "head_dim", "reach")}
        net = NetworkBuilder(Tensor("x", (tokens, dim)))

        def linear(width_in: int, width_out: int) -> OpSpec:
            return OpSpec.of("linear", tokens=tokens, **{"in": width_in}, out=width_out)

        x = net.add("norm", OpSpec.of("layernorm", tokens=tokens, dim=dim), "x")
        x = net.add("qkv", linear(dim, 3 * inner), x)
        q = net.add("split", OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=head_dim, parts=3), x)
        scores = OpSpec.of("matmul", heads=heads, m=tokens, k=head_dim, n=tokens, form="scores")
        share = net.add("scores", scores, q, f"{q}:1")
        share = net.add("relative_keys", OpSpec.of("relative_position", **places, form="keys"), share, q)
        share = net.add("softmax", OpSpec.of("softmax", heads=heads, m=tokens, n=tokens), share)
        mixed = OpSpec.of("matmul", heads=heads, m=tokens, k=tokens, n=head_dim, form="plain")
        y = net.add("mix", mixed, share, f"{q}:2")
        y = net.add("relative_values", OpSpec.of("relative_position", **places, form="values"), y, share)
        y = net.add("merge", OpSpec.of("merge_heads", tokens=tokens, heads=heads, head_dim=head_dim), y)
        y = net.add("projection", linear(inner, dim), y)
        return net.build(net.add("residual", OpSpec.of("add", tokens=tokens, dim=dim), "x", y))
