"""A ViT space so small that every proxy takes milliseconds."""

from __future__ import annotations

from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space, per_layer
from hwbench.space.lowering import Lowering

TOKENS, HEAD_DIM, CLASSES, LAYERS = 5, 8, 10, 4


class SmallVit(Space):
    name = "small-vit"
    genes = (
        Gene("embed_dim", (16, 24, 32)),
        Gene("depth", (2, 3, 4)),
        *per_layer("heads", (1, 2, 3), LAYERS),
        *per_layer("mlp_ratio", (2, 3, 4), LAYERS),
    )

    def lower(self, arch: Lowering) -> Workload:
        dim = arch["embed_dim"]
        arch.input(Tensor("image", (3, 32, 32)))
        x = arch.add("stem", "patch_embedding", "image", image=32, patch=16, channels=3, dim=dim)
        for i in arch.repeat("depth"):
            heads = {"heads": arch["heads", i], "head_dim": HEAD_DIM}
            x = arch.add(f"layer{i}.attention", "attention_block", x, tokens=TOKENS, dim=dim, **heads, norm="pre", qkv="fused")
            hidden = dim * arch["mlp_ratio", i]
            x = arch.add(f"layer{i}.ffn", "ffn_block", x, tokens=TOKENS, dim=dim, hidden=hidden, activation="gelu", norm="pre")
        return arch.workload(arch.add("head", "classifier_head", x, tokens=TOKENS, dim=dim, classes=CLASSES))
