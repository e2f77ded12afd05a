"""PiT and AutoFormer's relative positions as torch modules, written from the papers and not from hwbench."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studies.torch_reference import Attention, ClassifierHead, Ffn, Hybrid, PatchStem, Token, Whole, norm


class RelativeTable(nn.Module):
    """A vector for every pair of tokens: of rows apart plus of columns apart; the class token has one of its own."""

    def __init__(self, side: int, dim: int, reach: int) -> None:
        super().__init__()
        self.side, self.reach = side, reach
        self.vertical, self.horizontal = (nn.Parameter(torch.empty(2 * reach + 2, dim)) for _ in range(2))

    def pairs(self) -> Tensor:
        tokens = self.side**2 + 1
        found = self.vertical[0].expand(tokens, tokens, -1) + self.horizontal[0]
        places = torch.cartesian_prod(torch.arange(self.side), torch.arange(self.side))
        apart = (places[None] - places[:, None]).clamp(-self.reach, self.reach) + self.reach + 1
        found = found.clone()
        found[1:, 1:] = F.embedding(apart[..., 0], self.vertical) + F.embedding(apart[..., 1], self.horizontal)
        return found


class RelativeKeys(RelativeTable):
    def forward(self, scores: Tensor, queries: Tensor) -> Tensor:
        return scores + torch.einsum("bhid,ijd->bhij", queries, self.pairs()) / queries.shape[-1] ** 0.5


class RelativeValues(RelativeTable):
    def forward(self, mixed: Tensor, shares: Tensor) -> Tensor:
        return mixed + torch.einsum("bhij,ijd->bhid", shares, self.pairs())


class RelativeAttention(nn.Module):
    def __init__(self, side: int, dim: int, heads: int, head_dim: int, reach: int) -> None:
        super().__init__()
        inner = heads * head_dim
        self.heads, self.norm = heads, norm(dim)
        self.qkv, self.projection = nn.Linear(dim, 3 * inner), nn.Linear(inner, dim)
        self.relative_keys, self.relative_values = (kind(side, head_dim, reach) for kind in (RelativeKeys, RelativeValues))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        shares = self.relative_keys(q @ k.mT / q.shape[-1] ** 0.5, q).softmax(-1)
        mixed = self.relative_values(shares @ v, shares)
        return x + self.projection(mixed.transpose(1, 2).flatten(2))


def relative_vit(
    embed_dim: int, depth: int, heads: list[int], mlp_ratio: list[float], image: int = 224, reach: int = 14
) -> Whole:
    """AutoFormer as published."""
    layers = [
        (
            RelativeAttention(image // 16, embed_dim, heads[i], 64, reach),
            Ffn(embed_dim, int(embed_dim * mlp_ratio[i]), True),
        )
        for i in range(depth)
    ]
    return Whole(PatchStem(image, 16, 3, embed_dim), layers, ClassifierHead(embed_dim, 1000))


class OverlappingStem(nn.Module):
    def __init__(self, image: int, patch: int, stride: int, channels: int, dim: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, dim, patch, stride)
        self.position, self.class_token = nn.Embedding(((image - patch) // stride + 1) ** 2, dim), Token(dim)

    def forward(self, image: Tensor) -> Tensor:
        return self.class_token(self.projection(image).flatten(2).mT + self.position.weight)


class TokenPool(nn.Module):
    def __init__(self, height: int, width: int, dim: int, out: int) -> None:
        super().__init__()
        self.sides = (height, width)
        self.conv, self.linear = nn.Conv2d(dim, out, 3, 2, 1, groups=dim), nn.Linear(dim, out)

    def forward(self, x: Tensor) -> Tensor:
        token, patches = x.split([1, x.shape[1] - 1], dim=1)
        pooled = self.conv(patches.mT.unflatten(2, self.sides)).flatten(2).mT
        return torch.cat([self.linear(token), pooled], dim=1)


def pit(base_dim: int, mlp_ratio: int, heads: str, depth: list[int], image: int = 224) -> Hybrid:
    """Stages of blocks, pooling between them."""
    stages = [int(n) for n in heads.split("-")]
    blocks: dict[str, nn.Module] = {"stem": OverlappingStem(image, 16, 8, 3, base_dim * stages[0])}
    side = (image - 16) // 8 + 1
    for stage, n in enumerate(stages):
        dim = base_dim * n
        if stage:
            blocks[f"pool{stage}"] = TokenPool(side, side, base_dim * stages[stage - 1], dim)
            side = -(-side // 2)
        for i in range(depth[stage]):
            blocks[f"stage{stage}.layer{i}.attention"] = Attention(dim, n, base_dim, True, fused=True)
            blocks[f"stage{stage}.layer{i}.ffn"] = Ffn(dim, dim * mlp_ratio, True)
    return Hybrid({**blocks, "head": ClassifierHead(dim, 1000)})
