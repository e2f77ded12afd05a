"""AutoFormer's ViT spaces (Chen et al. 2021): one width per network, heads and MLP ratio per layer.

q-k-v width = 64 x heads whatever the network's width. 224 px, patch 16, 197 tokens, 1,000 classes. The
published networks also learn relative positions inside attention; `autoformer-tiny:relative=14` has them (distances clipped
at 14, as published), `autoformer-tiny` leaves them out, as deployed ViTs do. The class names follow the paper's supernets.

`autoformer-cifar10` is ours: the same choices so small that two cores can train a supernet, and subnets from scratch, in hours
(32 px, patch 8, 16 tokens and the class token, 16 channels per head; studies/own_benchmark).
"""

from __future__ import annotations

from typing import Any

from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space, per_layer
from hwbench.space.lowering import Lowering

VARIANTS: dict[str, dict[str, Any]] = {
    "autoformer-tiny": {"embed_dim": (192, 216, 240), "depth": (12, 13, 14), "heads": (3, 4), "mlp_ratio": (3.5, 4)},
    "autoformer-small": {"embed_dim": (320, 384, 448), "depth": (12, 13, 14), "heads": (5, 6, 7), "mlp_ratio": (3, 3.5, 4)},
    "autoformer-base": {"embed_dim": (528, 576, 624), "depth": (14, 15, 16), "heads": (8, 9, 10), "mlp_ratio": (3, 3.5, 4)},
    "autoformer-cifar10": {
        "embed_dim": (48, 64, 80), "depth": (3, 4, 5), "heads": (2, 3, 4), "mlp_ratio": (2, 2.5, 3),
        "image": 32, "patch": 8, "classes": 10, "head_dim": 16,
    },
}  # fmt: skip


class Autoformer(Space):
    """Choices of the published supernets as the survey's table 3 lists them."""

    name: str

    def __init__(
        self,
        embed_dim: tuple[int, ...],
        depth: tuple[int, ...],
        heads: tuple[int, ...],
        mlp_ratio: tuple[float, ...],
        image: int = 224,
        patch: int = 16,
        classes: int = 1000,
        head_dim: int = 64,
        relative: int = 0,
    ) -> None:
        if relative < 0:
            raise UsageError(
                f"autoformer: relative must be 0 (no relative positions) or the farthest distance, got {relative}."
            )
        layers = max(depth)
        self.image, self.patch, self.classes, self.head_dim, self.relative = image, patch, classes, head_dim, relative
        self.genes = (
            Gene("embed_dim", embed_dim),
            Gene("depth", depth),
            *per_layer("heads", heads, layers),
            *per_layer("mlp_ratio", mlp_ratio, layers),
        )

    def lower(self, arch: Lowering) -> Workload:
        """Patch embedding, (attention, FFN) x depth, classifier head; pre-norm."""
        side, dim = self.image // self.patch, arch["embed_dim"]
        tokens = side * side + 1
        arch.input(Tensor("image", (3, self.image, self.image)))
        x = arch.add("stem", "patch_embedding", "image", image=self.image, patch=self.patch, channels=3, dim=dim)
        for i in arch.repeat("depth"):
            name, sizes = f"layer{i}.attention", {"dim": dim, "heads": arch["heads", i], "head_dim": self.head_dim}
            if self.relative:
                x = arch.add(name, "relative_attention_block", x, height=side, width=side, **sizes, reach=self.relative)
            else:
                x = arch.add(name, "attention_block", x, tokens=tokens, **sizes, norm="pre", qkv="fused")
            hidden = dim * arch["mlp_ratio", i]
            x = arch.add(f"layer{i}.ffn", "ffn_block", x, tokens=tokens, dim=dim, hidden=hidden, activation="gelu", norm="pre")
        return arch.workload(arch.add("head", "classifier_head", x, tokens=tokens, dim=dim, classes=self.classes))
