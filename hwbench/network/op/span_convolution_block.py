"""ConvBERT's mixed attention (Jiang et al. 2020): self-attention beside a span-based dynamic convolution; residual, post-norm.

Half of the channels come from attention heads, the other half from as many heads of a convolution over `kernel` tokens, whose
weights are made of the query and of a convolution over the keys. dim = 2 * heads * head_dim.
"""

from __future__ import annotations

from hwbench.network.graph import Network, NetworkBuilder, Tensor
from hwbench.network.op.base import Block
from hwbench.network.spec import OpSpec


class SpanConvolutionBlock(Block):
    """(tokens, dim) -> (tokens, dim)."""

    fields = {"tokens": (), "heads": (), "head_dim": (), "kernel": ()}

    def expand(self, spec: OpSpec) -> Network:
        """Projections; attention; convolution; both side by side, projection, residual, norm."""
        tokens, heads, head_dim = (spec[d] for d in ("tokens", "heads", "head_dim"))
        inner, dim = heads * head_dim, 2 * heads * head_dim
        net = NetworkBuilder(Tensor("x", (tokens, dim)))
        query, key, value = (net.add(name, _linear(tokens, dim, inner), "x") for name in ("query", "key", "value"))
        attended = self._attention(net, spec, (query, key, value))
        convolved = self._convolution(net, spec, query)
        y = net.add("join", OpSpec.of("join_channels", tokens=tokens, first=inner, second=inner), attended, convolved)
        y = net.add("projection", _linear(tokens, dim, dim), y)
        y = net.add("residual", OpSpec.of("add", tokens=tokens, dim=dim), "x", y)
        return net.build(net.add("norm", OpSpec.of("layernorm", tokens=tokens, dim=dim), y))

    def _attention(self, net: NetworkBuilder, spec: OpSpec, projected: tuple[str, str, str]) -> str:
        tokens, heads, head_dim = (spec[d] for d in ("tokens", "heads", "head_dim"))
        split = OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=head_dim, parts=1)
        q, k, v = (net.add(f"split_{x}", split, x) for x in projected)
        scores = net.add("scores", OpSpec.of("matmul", heads=heads, m=tokens, k=head_dim, n=tokens, form="scores"), q, k)
        share = net.add("softmax", OpSpec.of("softmax", heads=heads, m=tokens, n=tokens), scores)
        y = net.add("mix", OpSpec.of("matmul", heads=heads, m=tokens, k=tokens, n=head_dim, form="plain"), share, v)
        return net.add("merge", OpSpec.of("merge_heads", tokens=tokens, heads=heads, head_dim=head_dim), y)

    def _convolution(self, net: NetworkBuilder, spec: OpSpec, query: str) -> str:
        tokens, heads, head_dim, kernel = (spec[d] for d in ("tokens", "heads", "head_dim", "kernel"))
        inner, dim = heads * head_dim, 2 * heads * head_dim
        span = net.add("key_depthwise", OpSpec.of("depthwise_tokens", tokens=tokens, dim=dim, kernel=kernel), "x")
        span = net.add("key_pointwise", _linear(tokens, dim, inner), span)
        span = net.add("span", OpSpec.of("multiply", tokens=tokens, dim=inner), span, query)
        weights = net.add("kernel", _linear(tokens, inner, heads * kernel), span)
        split = OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=kernel, parts=1)
        weights = net.add("split_kernel", split, weights)
        weights = net.add("kernel_softmax", OpSpec.of("softmax", heads=heads, m=tokens, n=kernel), weights)
        split = OpSpec.of("split_heads", tokens=tokens, heads=heads, head_dim=head_dim, parts=1)
        values = net.add("split_span_value", split, net.add("span_value", _linear(tokens, dim, inner), "x"))
        dims = {"heads": heads, "tokens": tokens, "head_dim": head_dim, "kernel": kernel}
        y = net.add("convolution", OpSpec.of("dynamic_convolution", **dims), values, weights)
        return net.add("merge_span", OpSpec.of("merge_heads", tokens=tokens, heads=heads, head_dim=head_dim), y)


def _linear(tokens: int, width_in: int, width_out: int) -> OpSpec:
    return OpSpec.of("linear", tokens=tokens, **{"in": width_in}, out=width_out)
