"""An elastic feed-forward block: `ffn_block` with any width and hidden width up to the maximal ones."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from hwbench.accuracy.supernet.linear import ElasticLinear
from hwbench.accuracy.supernet.norm import ElasticNorm
from hwbench.accuracy.supernet.slices import Shape, Tensor
from hwbench.network.spec import OpSpec


class ElasticFeedForward(nn.Module):
    """The first hidden channels are active; norm before or after."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        """Takes the maximal shape of every parameter."""
        super().__init__()
        self.norm = ElasticNorm(shapes["norm.weight"])
        self.up, self.down = ElasticLinear(shapes["up.weight"]), ElasticLinear(shapes["down.weight"])

    def forward(self, spec: OpSpec, x: Tensor) -> Tensor:
        """(batch, tokens, dim) -> the same."""
        activation = getattr(F, spec["activation"])
        y = self.up(self.norm(x) if spec["norm"] == "pre" else x, spec["hidden"])
        y = x + self.down(activation(y), x.shape[-1])
        return y if spec["norm"] == "pre" else self.norm(y)
