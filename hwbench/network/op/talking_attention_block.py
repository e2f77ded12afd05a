"""NASViT's self-attention over a whole feature map, with its residual and pre-norm.

Keys are narrow and values wide (LeViT); a depthwise 3 x 3 convolution runs over the values, a relative-position bias
is added to the scores, heads are mixed before and after the softmax, SiLU stands before the last projection.
"""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec

KERNEL = 3


class TalkingAttentionBlock(Block):
    """(height * width, dim) -> the same."""

    fields = dict.fromkeys(("height", "width", "dim", "heads", "key_dim", "value_dim", "window"), ())

    def expand(self, spec: OpSpec) -> Network:
        """norm; scores of queries and keys; values; their mix, projected; residual."""
        dim, heads, key_dim, value_dim = (spec[d] for d in ("dim", "heads", "key_dim", "value_dim"))
        sides = {"height": spec["height"], "width": spec["width"]}
        tokens = spec["height"] * spec["width"]
        values = heads * value_dim
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        x = net.add("norm", OpSpec.of("layernorm", tokens=tokens, dim=dim), "x")

        def linear(width_in: int, width_out: int) -> OpSpec:
            return OpSpec.of("linear", tokens=tokens, **{"in": width_in}, out=width_out)

        def split(head_dim: int) -> OpSpec:
            return OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=head_dim, parts=1)

        q, k = (
            net.add(f"split_{name}", split(key_dim), net.add(name, linear(dim, heads * key_dim), x))
            for name in ("query", "key")
        )
        share = net.add("scores", OpSpec.of("matmul", heads=heads, m=tokens, k=key_dim, n=tokens, form="scores"), q, k)
        share = net.add("bias", OpSpec.of("relative_bias", heads=heads, window=spec["window"], **sides), share)
        square = {"heads": heads, "m": tokens, "n": tokens}
        share = net.add("mix_scores", OpSpec.of("mix_heads", **square), share)
        share = net.add("softmax", OpSpec.of("softmax", **square), share)
        share = net.add("mix_shares", OpSpec.of("mix_heads", **square), share)

        v = net.add("to_map", OpSpec.of("unflatten_patches", dim=values, **sides), net.add("value", linear(dim, values), x))
        depthwise = {"in": values, "out": values, "groups": values, "kernel": KERNEL, "stride": 1, "padding": KERNEL // 2}
        v = net.add("value_conv", OpSpec.of("conv2d", **depthwise, **sides), v)
        v = net.add("to_tokens", OpSpec.of("flatten_patches", dim=values, **sides), v)
        v = net.add("split_value", split(value_dim), v)

        y = net.add("mix", OpSpec.of("matmul", heads=heads, m=tokens, k=tokens, n=value_dim, form="plain"), share, v)
        y = net.add("merge", OpSpec.of("merge_heads", tokens=tokens, heads=heads, head_dim=value_dim), y)
        y = net.add("activation", OpSpec.of("silu", tokens=tokens, dim=values), y)
        y = net.add("projection", linear(values, dim), y)
        return net.build(net.add("residual", OpSpec.of("add", tokens=tokens, dim=dim), "x", y))
