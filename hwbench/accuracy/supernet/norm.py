"""An elastic layer norm: scale and shift of the first channels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hwbench.accuracy.supernet.slices import Shape, Tensor
from hwbench.network.op.layernorm import EPSILON


class ElasticNorm(nn.Module):
    """Over as many channels as its input has, so that statistics are the subnet's own."""

    def __init__(self, shape: Shape) -> None:
        """Takes the maximal scale's shape."""
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        dim = x.shape[-1]
        return F.layer_norm(x, (dim,), self.weight[:dim], self.bias[:dim], EPSILON)
