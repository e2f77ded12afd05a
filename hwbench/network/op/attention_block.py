"""Multi-head self-attention with its residual and layer norm, head size independent of the width.

norm=pre  (ViT):  x + proj(attention(norm(x)));  norm=post (BERT): norm(x + proj(attention(x))).
qkv=fused is one projection cut in three (timm), qkv=separate three projections (BERT).
"""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class AttentionBlock(Block):
    """(tokens, dim) -> (tokens, dim)."""

    fields = {
        "tokens": (),
        "dim": (),
        "heads": (),
        "head_dim": (),
        "norm": ("pre", "post"),
        "qkv": ("fused", "separate"),
    }

    def expand(self, spec: OpSpec) -> Network:
        """Projections, heads, scores, softmax, mix, projection, residual; the norm first or last."""
        tokens, dim, heads, head_dim = (spec[d] for d in ("tokens", "dim", "heads", "head_dim"))
        inner = heads * head_dim
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        norm = OpSpec.of("layernorm", tokens=tokens, dim=dim)
        x = net.add("norm", norm, "x") if spec["norm"] == "pre" else "x"

        def split(parts: int) -> OpSpec:
            return OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=head_dim, parts=parts)

        def linear(width_in: int, width_out: int) -> OpSpec:
            return OpSpec.of("linear", tokens=tokens, **{"in": width_in}, out=width_out)

        if spec["qkv"] == "fused":
            whole = net.add("split", split(3), net.add("qkv", linear(dim, 3 * inner), x))
            q, k, v = whole, f"{whole}:1", f"{whole}:2"
        else:
            q, k, v = (
                net.add(f"split_{name}", split(1), net.add(name, linear(dim, inner), x)) for name in ("query", "key", "value")
            )
        scores = OpSpec.of("matmul", heads=heads, m=tokens, k=head_dim, n=tokens, form="scores")
        mixed = OpSpec.of("matmul", heads=heads, m=tokens, k=tokens, n=head_dim, form="plain")
        share = net.add("softmax", OpSpec.of("softmax", heads=heads, m=tokens, n=tokens), net.add("scores", scores, q, k))
        y = net.add(
            "merge", OpSpec.of("merge_heads", tokens=tokens, heads=heads, head_dim=head_dim), net.add("mix", mixed, share, v)
        )
        y = net.add("residual", OpSpec.of("add", tokens=tokens, dim=dim), "x", net.add("projection", linear(inner, dim), y))
        return net.build(net.add("norm", norm, y) if spec["norm"] == "post" else y)
