"""NAS-Bench-BERT's networks as torch modules, written from the papers and not from hwbench."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studies.torch_reference import Attention, Hybrid, PooledHead, TokenStem, norm


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def dct(x: Tensor) -> Tensor:
    """Type II without normalisation, as half of a Fourier transform of the signal and its mirror image."""
    n = x.shape[-1]
    turn = torch.exp(-1j * torch.pi * torch.arange(n) / (2 * n))
    return (torch.fft.fft(torch.cat([x, x.flip(-1)], dim=-1).double(), dim=-1)[..., :n] * turn).real.float()


def transformed(x: Tensor, form: str) -> Tensor:
    return torch.fft.fft2(x.double()).real.float() if form == "dft" else dct(dct(x).mT).mT


class Spectral(nn.Module):
    def __init__(self, dim: int, heads: int, form: str) -> None:
        super().__init__()
        self.input, self.heads, self.form = nn.Linear(dim, dim), heads, form

    def forward(self, x: Tensor) -> Tensor:
        return transformed(heads_of(self.input(x), self.heads), self.form).transpose(1, 2).flatten(2)


class WeightedAttention(nn.Module):
    def __init__(self, dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        inner, self.heads = heads * head_dim, heads
        self.query, self.key, self.value = (nn.Linear(dim, inner) for _ in range(3))
        self.weight, self.projection, self.norm = nn.Linear(inner, inner, bias=False), nn.Linear(inner, dim), norm(dim)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.weight(self.query(x)), self.key(x), self.value(x)
        mixed = F.scaled_dot_product_attention(*(heads_of(part, self.heads) for part in parts))
        return self.norm(x + self.projection(mixed.transpose(1, 2).flatten(2)))


class DepthwiseTokens(nn.Conv2d):
    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__(dim, dim, (kernel, 1), padding=(kernel // 2, 0), groups=dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mT.unsqueeze(3)).squeeze(3).mT


def dynamic_convolution(x: Tensor, weights: Tensor) -> Tensor:
    """A sum over shifted copies, each weighted token by token."""
    kernel, tokens = weights.shape[-1], x.shape[2]
    padded = F.pad(x, (0, 0, kernel // 2, kernel // 2))
    return sum(weights[..., j : j + 1] * padded[:, :, j : j + tokens] for j in range(kernel))


class SpanConvolution(nn.Module):
    def __init__(self, dim: int, heads: int, kernel: int) -> None:
        """`heads` of attention and as many of convolution share the channels."""
        super().__init__()
        half, self.heads = dim // 2, heads
        self.query, self.key, self.value, self.key_pointwise, self.span_value = (nn.Linear(dim, half) for _ in range(5))
        self.key_depthwise, self.kernel = DepthwiseTokens(dim, kernel), nn.Linear(half, heads * kernel)
        self.projection, self.norm = nn.Linear(dim, dim), norm(dim)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        attended = F.scaled_dot_product_attention(*(heads_of(part, self.heads) for part in (query, self.key(x), self.value(x))))
        weights = heads_of(self.kernel(self.key_pointwise(self.key_depthwise(x)) * query), self.heads).softmax(-1)
        convolved = dynamic_convolution(heads_of(self.span_value(x), self.heads), weights)
        both = torch.cat([attended, convolved], dim=1).transpose(1, 2).flatten(2)
        return self.norm(x + self.projection(both))


class StackedFfn(nn.Module):
    def __init__(self, dim: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = layers
        for i in range(layers):
            self.add_module(f"up{i}", nn.Linear(hidden if i else dim, hidden))
        self.down, self.norm = nn.Linear(hidden, dim), norm(dim)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(self.layers):
            y = F.gelu(self.get_submodule(f"up{i}")(y))
        return self.norm(x + self.down(y))


def nasbench_bert(
    hidden_size: int, depth: int, operation: list[str], heads: list[int], ffn_dim: list[int], ffn_layers: list[int],
    score: Sequence[str | None] = (), transform: Sequence[str | None] = (), kernel: Sequence[int | None] = (), classes: int = 2,
) -> Hybrid:  # fmt: skip
    """ELECTRA's embeddings, layers, pooler."""
    blocks: dict[str, nn.Module] = {"stem": TokenStem(30_522, 512, 128)}
    if hidden_size != 128:
        blocks["projection"] = nn.Linear(128, hidden_size)
    for i, kind in enumerate(operation):
        dims = hidden_size, heads[i]
        blocks[f"layer{i}.{kind}"] = (
            Spectral(*dims, str(transform[i])) if kind == "transform"
            else SpanConvolution(hidden_size, heads[i] // 2, int(kernel[i] or 0)) if kind == "convolution"
            else WeightedAttention(*dims, hidden_size // heads[i]) if score[i] == "weighted"
            else Attention(*dims, hidden_size // heads[i], False, fused=False)
        )  # fmt: skip
        blocks[f"layer{i}.ffn"] = StackedFfn(hidden_size, ffn_dim[i], ffn_layers[i])
    assert len(operation) == depth
    return Hybrid({**blocks, "head": PooledHead(hidden_size, classes)})
