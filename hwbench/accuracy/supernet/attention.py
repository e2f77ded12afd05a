"""Elastic self-attention: `attention_block` with any width and number of heads up to the maximal ones."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from hwbench.accuracy.supernet.linear import ElasticLinear
from hwbench.accuracy.supernet.norm import ElasticNorm
from hwbench.accuracy.supernet.slices import Shape, Tensor
from hwbench.network.spec import OpSpec

SEPARATE = ("query", "key", "value")


class ElasticAttention(nn.Module):
    """The first heads of each projection are active; fused or separate projections, norm before or after."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        """Takes the maximal shape of every parameter."""
        super().__init__()
        self.norm = ElasticNorm(shapes["norm.weight"])
        if "qkv.weight" in shapes:
            self.qkv = ElasticLinear(shapes["qkv.weight"], parts=3)
        else:
            for name in SEPARATE:
                self.add_module(name, ElasticLinear(shapes[f"{name}.weight"]))
        self.projection = ElasticLinear(shapes["projection.weight"])

    def forward(self, spec: OpSpec, x: Tensor, queries: int | None = None) -> Tensor:
        """(batch, tokens, dim) -> the same, or its first `queries` tokens only."""
        given = self.norm(x) if spec["norm"] == "pre" else x
        x, asking = x[:, :queries], given[:, :queries]
        heads, inner = spec["heads"], spec["heads"] * spec["head_dim"]
        if spec["qkv"] == "fused":
            projected = self.qkv.split((asking, given, given), inner)
        else:
            projected = [self.get_submodule(n)(y, inner) for n, y in zip(SEPARATE, (asking, given, given), strict=True)]
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in projected)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        y = x + self.projection(mixed, x.shape[-1])
        return y if spec["norm"] == "pre" else self.norm(y)
