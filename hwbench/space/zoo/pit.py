"""PiT spaces of TF-TAS (Zhou et al. 2022): the pooling Transformer of Heo et al. 2021, three stages of fewer and wider tokens.

A stage's width is base_dim x its heads; pooling between stages halves the sides (27, 14, 7 at 224 px) and can only widen by a
whole factor, so heads never fall from stage to stage: of 27 triples ten remain, and they are one gene. The class token is
pooled by a linear layer of its own. T-Razor searches the same spaces; ViT-Bench-101's PiT table holds networks of `pit-ti`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space
from hwbench.space.lowering import Lowering

DEPTHS = ((1, 2, 3), (4, 6, 8), (2, 4, 6))
"""Of every stage."""
VARIANTS: dict[str, dict[str, tuple[int, ...]]] = {
    "pit-ti": {"base_dim": (16, 24, 32, 40), "heads": (2, 4, 8)},
    "pit-xs": {"base_dim": (40, 48, 56, 64), "heads": (2, 4, 8)},
    "pit-s": {"base_dim": (36, 48, 60, 72), "heads": (3, 6, 12)},
}
MLP_RATIO = (2, 4, 6, 8)
PATCH, STRIDE = 16, 8


def word(heads: Sequence[int]) -> str:
    """The heads of the stages as the gene states them: 2-4-8."""
    return "-".join(map(str, heads))


class Pit(Space):
    """Base width, MLP ratio and the heads of all stages for the network, a depth per stage."""

    name: str

    def __init__(self, base_dim: tuple[int, ...], heads: tuple[int, ...], image: int = 224, classes: int = 1000) -> None:
        self.image, self.classes = image, classes
        rising = [(a, b, c) for a in heads for b in heads for c in heads if a <= b <= c]
        self.genes = (
            Gene("base_dim", base_dim),
            Gene("mlp_ratio", MLP_RATIO),
            Gene("heads", tuple(map(word, rising))),
            *(Gene("depth", choices, stage) for stage, choices in enumerate(DEPTHS)),
        )

    def lower(self, arch: Lowering) -> Workload:
        """Overlapping patches, stages of (attention, FFN) with pooling between them, classifier head; pre-norm."""
        arch.input(Tensor("image", (3, self.image, self.image)))
        with arch.choose("heads") as triple:
            return arch.workload(self._stages(arch, [int(heads) for heads in triple.split("-")]))

    def _stages(self, arch: Lowering, triple: Sequence[int]) -> str:
        base, ratio, side = arch["base_dim"], arch["mlp_ratio"], (self.image - PATCH) // STRIDE + 1
        dim = base * triple[0]
        x = arch.add(
            "stem", "strided_patch_embedding", "image", image=self.image, patch=PATCH, stride=STRIDE, channels=3, dim=dim
        )
        for stage, heads in enumerate(triple):
            if stage:
                before, dim = dim, base * heads
                x = arch.add(f"pool{stage}", "token_pool_block", x, height=side, width=side, **{"in": before}, out=dim)
                side = (side + 1) // 2
            tokens = side * side + 1
            for i in arch.repeat(("depth", stage)):
                x = arch.add(
                    f"stage{stage}.layer{i}.attention", "attention_block", x,
                    tokens=tokens, dim=dim, heads=heads, head_dim=base, norm="pre", qkv="fused",
                )  # fmt: skip
                sizes = {"tokens": tokens, "dim": dim, "hidden": dim * ratio}
                x = arch.add(f"stage{stage}.layer{i}.ffn", "ffn_block", x, **sizes, activation="gelu", norm="pre")
        return arch.add("head", "classifier_head", x, tokens=side * side + 1, dim=dim, classes=self.classes)
