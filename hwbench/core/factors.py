"""Tables over a few genes each: what sums, maxima and products over architectures are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Factor = tuple[tuple[int, ...], np.ndarray]
"""(genes in order, an array over all their choices); no genes and a single number is a constant."""


def spread(table: np.ndarray, genes: tuple[int, ...], union: tuple[int, ...], sizes: Sequence[int]) -> np.ndarray:
    """The table with an axis for every gene of the union."""
    return table.reshape([sizes[g] if g in genes else 1 for g in union])


def added(factors: Sequence[Factor], rows: np.ndarray) -> np.ndarray:
    """The sum of tables for every architecture, a row of genes each."""
    total = np.zeros(len(rows))
    for genes, table in factors:
        total += table[tuple(rows[:, gene] for gene in genes)]
    return total
