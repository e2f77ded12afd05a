"""A space as the problem a strategy is to solve."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hwbench.core.genes import Genes
from hwbench.optimize.problem import Problem
from hwbench.space.activity import canonical
from hwbench.space.base import Space


def problem(
    space: Space,
    objectives: Mapping[str, str],
    limits: Mapping[str, float] | None = None,
    known: Mapping[str, Callable[[Genes], np.ndarray]] | None = None,
) -> Problem:
    """What a strategy is to solve in this space; there architectures are rows, here columns."""
    return Problem(
        [(gene.label, len(gene.choices)) for gene in space.genes],
        objectives,
        limits or {},
        known or {},
        canonical=lambda genes: np.ascontiguousarray(canonical(space, genes.T).T),
        wide=[i for i, gene in enumerate(space.genes) if gene.layer is None],
    )
