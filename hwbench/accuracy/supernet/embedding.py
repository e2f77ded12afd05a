"""Elastic embedding of an image's patches: `patch_embedding` with any width up to the maximal one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hwbench.accuracy.supernet.slices import Shape, Tensor
from hwbench.network.spec import OpSpec


class _Table(nn.Module):
    """A learned array whose last axis is the width."""

    def __init__(self, name: str, shape: Shape) -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self._name = name

    def forward(self, dim: int) -> Tensor:
        return self.get_parameter(self._name)[..., :dim]


class _Patches(nn.Module):
    """A convolution whose stride is its kernel: a product of every patch's pixels."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape[0]))

    def forward(self, image: Tensor, dim: int) -> Tensor:
        """(batch, channels, side, side) -> (batch, patches, dim)."""
        patch = self.weight.shape[-1]
        cut = image.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # batch, channels, row, y, column, x
        pixels = cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return F.linear(pixels, self.weight[:dim].flatten(1), self.bias[:dim])


class ElasticPatchEmbedding(nn.Module):
    """The first channels of projection, class token and positions are active."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        """Takes the maximal shape of every parameter."""
        super().__init__()
        self.projection = _Patches(shapes["projection.weight"])
        self.class_token = _Table("token", shapes["class_token.token"])
        self.position = _Table("weight", shapes["position.weight"])

    def forward(self, spec: OpSpec, image: Tensor) -> Tensor:
        """(batch, channels, side, side) -> (batch, patches + 1, dim)."""
        dim = spec["dim"]
        token = self.class_token(dim).expand(len(image), -1, -1)
        return torch.cat([token, self.projection(image, dim)], dim=1) + self.position(dim)
