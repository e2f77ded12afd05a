"""An elastic linear layer: y = x W^T + b with the first rows and columns of one maximal weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from hwbench.accuracy.supernet.slices import Shape, Tensor, grouped


class ElasticLinear(nn.Module):
    """Reads as many columns as its input has channels, and as many rows as are asked for."""

    def __init__(self, shape: Shape, parts: int = 1) -> None:
        """Takes the maximal weight's shape; `parts` projections may share it, one below the other (fused q-k-v)."""
        super().__init__()
        self.parts = parts
        self.weight, self.bias = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape[0]))

    def forward(self, x: Tensor, rows: int) -> Tensor:
        """(..., columns) -> (..., rows)."""
        return F.linear(x, self.weight[:rows, : x.shape[-1]], self.bias[:rows])

    def split(self, given: Sequence[Tensor], rows: int) -> list[Tensor]:
        """Every part's first rows of what it is given; products of their own, since together they would have to be copied."""
        weights, biases = grouped(self.weight, rows, self.parts), grouped(self.bias, rows, self.parts)
        return [F.linear(x, w[:, : x.shape[-1]], b) for x, w, b in zip(given, weights, biases, strict=True)]
