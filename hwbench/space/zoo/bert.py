"""The BERT space of T-Razor (Zhou et al. 2024): number of blocks, and per block heads and FFN width.

Hidden 768, vocabulary 30,522, 512 positions; heads share the 768 channels, as in BERT. The sequence length
is part of the space's name: `bert` is 128 tokens, `bert:sequence=384` is 384. The paper prints a size of
1.6e12; the listed choices give 2.8e14.
"""

from __future__ import annotations

from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space, per_layer
from hwbench.space.lowering import Lowering

HIDDEN, VOCABULARY, POSITIONS = 768, 30_522, 512


class Bert(Space):
    """12 blocks of 12 heads and 3,072 hidden channels are BERT-base."""

    name: str

    def __init__(self, sequence: int = 128, classes: int = 2) -> None:
        if not 1 <= sequence <= POSITIONS:
            raise UsageError(f"bert: sequence must be 1 to {POSITIONS}, got {sequence}.")
        self.sequence, self.classes = sequence, classes
        self.genes = (
            Gene("blocks", (6, 8, 10, 12)),
            *per_layer("heads", (4, 8, 12, 16), 12),
            *per_layer("ffn_inner", (512, 768, 1024, 3072), 12),
        )

    def lower(self, arch: Lowering) -> Workload:
        """Embeddings, (attention, FFN) x blocks, pooled head; post-norm."""
        tokens = self.sequence
        arch.input(Tensor("input_ids", (tokens,), "int64", high=VOCABULARY))
        x = arch.add("stem", "token_embedding", "input_ids", tokens=tokens, vocabulary=VOCABULARY, length=POSITIONS, dim=HIDDEN)
        for i in arch.repeat("blocks"):
            heads = arch["heads", i]
            x = arch.add(
                f"layer{i}.attention", "attention_block", x,
                tokens=tokens, dim=HIDDEN, heads=heads, head_dim=HIDDEN // heads, norm="post", qkv="separate",
            )  # fmt: skip
            hidden = arch["ffn_inner", i]
            x = arch.add(
                f"layer{i}.ffn", "ffn_block", x, tokens=tokens, dim=HIDDEN, hidden=hidden, activation="gelu", norm="post"
            )
        return arch.workload(arch.add("head", "pooled_head", x, tokens=tokens, dim=HIDDEN, classes=self.classes))
