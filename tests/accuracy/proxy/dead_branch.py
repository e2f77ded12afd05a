"""A space built so that parameters mislead: a branch whose output is multiplied by zero has many, and does nothing."""

from __future__ import annotations

from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space
from hwbench.space.lowering import Lowering

DIM, TOKENS = 24, 5
SMALL, DEAD, LARGE = [0, 0], [0, 1], [1, 0]
"""Genes: few hidden units; the same and the dead branch; many hidden units."""


class DeadBranch(Space):
    name = "dead-branch"
    genes = (Gene("hidden", (16, 64)), Gene("dead", (0, 4096)))

    def lower(self, arch: Lowering) -> Workload:
        arch.input(Tensor("image", (3, 32, 32)))
        x = arch.add("stem", "patch_embedding", "image", image=32, patch=16, channels=3, dim=DIM)
        sizes = {"tokens": TOKENS, "dim": DIM}
        x = arch.add("attention", "attention_block", x, **sizes, heads=2, head_dim=8, norm="pre", qkv="separate")
        x = arch.add("ffn", "ffn_block", x, **sizes, hidden=arch["hidden"], activation="gelu", norm="pre")
        if arch.present("dead"):
            with arch.under("dead"), arch.choose("dead") as width:
                y = arch.add("dead.up", "linear", x, tokens=TOKENS, **{"in": DIM}, out=width)
                y = arch.add("dead.down", "linear", y, tokens=TOKENS, **{"in": width}, out=DIM)
                y = arch.add("dead.map", "unflatten_patches", y, dim=DIM, height=TOKENS, width=1)
                y = arch.add("dead.zero", "map_zero", y, channels=DIM, height=TOKENS, width=1)
                y = arch.add("dead.tokens", "flatten_patches", y, dim=DIM, height=TOKENS, width=1)
            with arch.under("dead"):
                x = arch.add("dead.sum", "add", x, y, **sizes)
        return arch.workload(arch.add("head", "classifier_head", x, **sizes, classes=10))
