"""Architectures as rows of small whole numbers, and what tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.core.errors import UsageError

Genes = np.ndarray
"""uint8[n, genes]: row i is one architecture."""


ENUMERABLE = 200_000
"""Spaces of at most so many combinations are listed whole when draws find nothing new."""


@dataclass(frozen=True)
class Block:
    """A part of an architecture that has a share of its own in what the whole is worth."""

    name: str
    kind: str
    """Shares of one kind can be compared with each other."""
    genes: tuple[int, ...]
    """That shape it, without those that shape the whole network."""


def keys(genes: Genes) -> list[bytes]:
    """A hashable identity per architecture."""
    width = genes.shape[1]
    raw = np.ascontiguousarray(genes).tobytes()
    return [raw[at : at + width] for at in range(0, len(raw), width)]


def check_choices(rows: np.ndarray, genes: Sequence[tuple[str, int]]) -> None:
    """Raises where a row [n, genes] of whole numbers holds a choice that its gene, (name, number of choices), does not have."""
    wrong = (rows < 0) | (rows >= np.array([size for _, size in genes]))
    if wrong.any():
        row, gene = np.argwhere(wrong)[0]
        name, size = genes[gene]
        raise UsageError(f"Architecture {row}: gene '{name}' is {rows[row, gene]}, it has choices 0 to {size - 1}.")
