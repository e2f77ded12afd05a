"""Subnets of one BERT-family encoder as a space: depth, and for every layer its heads and its feed-forward width.

Every encoder has such a space of its own, so it is made of numbers and is no file of the zoo; it is given to any verb as an
object: `hwbench.profile(space)`, `hwbench.search(space, ...)`. The width of queries, keys and values is heads times head_dim.
With `precisions`, the number format of every attention and feed-forward block is chosen, too.
Nothing masks padding here, as one sample has none; a model exported with an open length adds its mask to the scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.files import fingerprint
from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Column, Gene, Space
from hwbench.space.lowering import Lowering

PRECISIONS = ("attention_precision", "ffn_precision")
"""Genes of the number format of either block of a layer."""
DIGITS = 8
"""Of the fingerprint in a name."""


@dataclass(frozen=True)
class EncoderSizes:
    """What all subnets of an encoder share."""

    vocabulary: int
    positions: int
    """Rows of the position table: the longest text."""
    dim: int
    head_dim: int
    classes: int
    tokens: int
    """Length of the text whose latency is told."""
    activation: str = "gelu"


@dataclass(frozen=True)
class Widths:
    """What tells subnets apart; there are as many layers as numbers."""

    heads: tuple[int, ...]
    hidden: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.heads)

    @classmethod
    def of(cls, architecture: Mapping[str, Any]) -> Widths:
        """Of an architecture as values: {"depth": 6, "heads": [...], "hidden": [...]}."""
        return cls(tuple(architecture["heads"]), tuple(architecture["hidden"]))


class EncoderSpace(Space):
    """The first layers up to a depth, the first heads and hidden channels of each."""

    name: str

    def __init__(
        self,
        sizes: EncoderSizes,
        heads: Sequence[Sequence[int]],
        hidden: Sequence[Sequence[int]],
        depths: Sequence[int] | None = None,
        precisions: Sequence[str] | None = None,
    ) -> None:
        """Takes the choices of every layer, of the depth (all layers if not given), and the number formats of blocks.

        Raises:
            UsageError: choices are missing, not rising or not positive, or texts are longer than the position table.
        """
        depths = [len(heads)] if depths is None else depths
        if len(heads) != len(hidden) or not heads or max(depths) != len(heads):
            raise UsageError(
                f"{len(heads)} layers of heads, {len(hidden)} of hidden widths and depths {list(depths)} disagree."
            )
        for choices in (*heads, *hidden, depths):
            if not choices or min(choices) < 1 or sorted(set(choices)) != list(choices):
                raise UsageError(f"Choices must rise and be at least 1, got {list(choices)}.")
        if not 1 <= sizes.tokens <= sizes.positions:
            raise UsageError(f"Texts of {sizes.tokens} tokens do not fit an encoder of {sizes.positions} positions.")
        self.sizes, self.precisions = sizes, None if precisions is None else tuple(precisions)
        formats = tuple(Gene(name, self.precisions or (), i) for name in PRECISIONS for i in range(len(heads)))
        self.genes = (
            Gene("depth", tuple(depths)),
            *(Gene("heads", tuple(choices), layer) for layer, choices in enumerate(heads)),
            *(Gene("hidden", tuple(choices), layer) for layer, choices in enumerate(hidden)),
            *(formats if self.precisions else ()),
        )
        self.name = f"encoder-{fingerprint(self.document())[:DIGITS]}"

    @classmethod
    def grid(cls, sizes: EncoderSizes, full: Widths, step: int) -> EncoderSpace:
        """Every number of heads, and every multiple of `step` hidden channels, up to those of the full encoder.

        Raises:
            UsageError: the full width is no multiple of the step.
        """
        wrong = [width for width in full.hidden if step < 1 or width % step]
        if wrong:
            raise UsageError(f"Feed-forward widths go in steps that divide the full one: {step} does not divide {wrong[0]}.")
        hidden = [range(step, width + 1, step) for width in full.hidden]
        return cls(sizes, [list(range(1, n + 1)) for n in full.heads], [list(widths) for widths in hidden])

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> EncoderSpace:
        """What `document` described."""
        heads, hidden, depths = (document[name] for name in ("heads", "hidden", "depths"))
        return cls(EncoderSizes(**document["sizes"]), heads, hidden, depths, document.get("precisions"))

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        choices = {name: [list(g.choices) for g in self.genes if g.name == name] for name in ("depth", "heads", "hidden")}
        (depths,) = choices.pop("depth")
        formats = {"precisions": list(self.precisions)} if self.precisions else {}
        return {"sizes": asdict(self.sizes), "depths": depths, **choices, **formats}

    def widths(self, column: Column) -> Widths:
        """Of one architecture."""
        chosen = {(gene.name, gene.layer): int(gene.choices[int(at)]) for gene, at in zip(self.genes, column, strict=True)}
        layers = range(chosen["depth", None])
        return Widths(tuple(chosen["heads", i] for i in layers), tuple(chosen["hidden", i] for i in layers))

    def column_of(self, widths: Widths, formats: Mapping[str, Sequence[str]] = {}) -> np.ndarray:
        """The architecture of these widths, and of these formats of blocks where they are chosen: gene -> one per layer.

        Raises:
            ValueError: one of them is no choice here.
        """
        chosen: dict[str, Sequence[Any]] = {"depth": (widths.depth,), "heads": widths.heads, "hidden": widths.hidden, **formats}
        at = [chosen[gene.name][gene.layer or 0 : (gene.layer or 0) + 1] for gene in self.genes]  # none beyond the depth
        return np.array([g.choices.index(value[0]) if value else 0 for g, value in zip(self.genes, at, strict=True)], np.uint8)

    def lower(self, arch: Lowering) -> Workload:
        """Embeddings, (attention, FFN) x depth, pooled head; post-norm."""
        sizes = self.sizes
        tokens, dim = sizes.tokens, sizes.dim
        arch.input(Tensor("input_ids", (tokens,), "int64", high=sizes.vocabulary))
        x = arch.add(
            "stem", "token_embedding", "input_ids",
            tokens=tokens, vocabulary=sizes.vocabulary, length=sizes.positions, dim=dim,
        )  # fmt: skip
        for i in arch.repeat("depth"):
            attention, ffn = (arch[name, i] if self.precisions else None for name in PRECISIONS)
            x = arch.add(
                f"layer{i}.attention", "attention_block", x, precision=attention,
                tokens=tokens, dim=dim, heads=arch["heads", i], head_dim=sizes.head_dim, norm="post", qkv="separate",
            )  # fmt: skip
            x = arch.add(
                f"layer{i}.ffn", "ffn_block", x, precision=ffn,
                tokens=tokens, dim=dim, hidden=arch["hidden", i], activation=sizes.activation, norm="post",
            )  # fmt: skip
        return arch.workload(arch.add("head", "pooled_head", x, tokens=tokens, dim=dim, classes=sizes.classes))
