"""A space as the problem a strategy is to solve.

Strategies see an architecture as a row (`Genes`, uint8[n, genes]), spaces and costs as a column (`Population`,
uint8[genes, n]). The two meet here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hwbench.core.factors import Factor
from hwbench.core.genes import Block, Genes
from hwbench.optimize.problem import Problem
from hwbench.space.activity import activity, canonical
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


def as_population(genes: Genes) -> Population:
    """Rows as the columns that spaces and costs read."""
    return np.ascontiguousarray(genes.T)


def as_genes(population: Population) -> Genes:
    """Columns as the rows that strategies read."""
    return np.ascontiguousarray(population.T)


def problem(
    space: Space,
    objectives: Mapping[str, str],
    limits: Mapping[str, float] | None = None,
    known: Mapping[str, Callable[[Genes], np.ndarray]] | None = None,
    additive: Mapping[str, Sequence[Factor]] | None = None,
    blocks: Sequence[Block] = (),
) -> Problem:
    """What a strategy is to solve in this space."""
    return Problem(
        [(gene.label, len(gene.choices)) for gene in space.genes],
        objectives,
        limits or {},
        known or {},
        canonical=lambda genes: as_genes(canonical(space, genes.T)),
        wide=[i for i, gene in enumerate(space.genes) if gene.layer is None],
        additive=additive or {},
        refusals=activity(space).refusals if additive else (),
        blocks=blocks,
    )


def factors(weight: float, compiled: CompiledSum) -> list[Factor]:
    """So many times a compiled sum, as the tables it adds up: a layer that is not there adds 0."""
    parts = [((), np.array(compiled.constant)), *compiled.factors]
    return [(genes, weight * table) for genes, table in parts]
