"""Sums and minima over all architectures without listing them: genes are eliminated from tables one after the other.

Right for every pair of operations of which one distributes over the other (Dechter 1999, bucket elimination): a sum of
products, the minimum of sums, the minimum of maxima.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor, spread

MAX_ELIMINATION = 10_000_000
"""Entries of one joint table."""


def eliminate(
    factors: Sequence[Factor],
    sizes: Sequence[int],
    combine: np.ufunc,
    nothing: object,
    keep: Callable[[int, tuple[int, ...], np.ndarray, int], np.ndarray],
    what: str,
) -> list[object]:
    """Takes gene after gene out of the tables, cheapest first; what is left of each group of genes is one value.

    Args:
        factors: Tables over genes.
        sizes: Choices of every gene.
        combine: Joins tables.
        nothing: What changes no combination.
        keep: (gene, the others of its tables, their joint table, the gene's axis) -> the table without the gene.
        what: Said where tables grow too large.
    """
    left, rest = {g for genes, _ in factors for g in genes}, list(factors)
    values: list[object] = [table.item() for genes, table in rest if not genes]
    rest = [factor for factor in rest if factor[0]]
    while left:
        scopes = {gene: {g for genes, _ in rest if gene in genes for g in genes} for gene in left}
        gene = min(sorted(left), key=lambda g: math.prod(sizes[x] for x in scopes[g]))
        union = tuple(sorted(scopes[gene]))
        if math.prod(sizes[g] for g in union) > MAX_ELIMINATION:
            raise UsageError(f"{what} is too entangled to compute exactly.")
        joint = np.full([sizes[g] for g in union], nothing)
        for genes, table in rest:
            if gene in genes:
                joint = combine(joint, spread(table, genes, union, sizes))
        others = tuple(g for g in union if g != gene)
        reduced = keep(gene, others, joint, union.index(gene))
        rest = [factor for factor in rest if gene not in factor[0]]
        if others:
            rest.append((others, reduced))
        else:
            values.append(reduced.item() if isinstance(reduced, np.ndarray) else reduced)
        left.remove(gene)
    return values


def total(factors: Sequence[Factor], sizes: Sequence[int], name: str) -> int:
    """The sum over all choices of the product of whole-number tables, exactly."""
    values = eliminate(
        factors, sizes, np.multiply, 1, lambda gene, others, joint, axis: joint.sum(axis=axis), f"The size of {name}"
    )
    return math.prod(int(value) for value in values)  # type: ignore[call-overload]


def least(
    factors: Sequence[Factor], sizes: Sequence[int], constant: float, combine: np.ufunc, nothing: float, name: str
) -> tuple[float, np.ndarray]:
    """The smallest combination of tables and constant, and the choices that reach it (0 for genes of no table)."""
    choices: list[tuple[int, tuple[int, ...], np.ndarray]] = []

    def keep(gene: int, others: tuple[int, ...], joint: np.ndarray, axis: int) -> np.ndarray:
        choices.append((gene, others, joint.argmin(axis=axis)))
        return np.asarray(joint.min(axis=axis))

    best = constant
    for value in eliminate(factors, sizes, combine, nothing, keep, f"The minimum over {name}"):
        best = float(combine(best, value))
    column = np.zeros(len(sizes), np.uint8)
    for gene, others, argument in reversed(choices):
        column[gene] = argument[tuple(column[g] for g in others)]
    return best, column
