"""The largest architecture of a space: what a share such as `0.6x` is a share of."""

from __future__ import annotations

import numpy as np

from hwbench.network.op.base import op_of
from hwbench.space import activity
from hwbench.space.base import Space
from hwbench.space.compiled import CompiledSum


def largest(space: Space) -> np.ndarray:
    """The column of the architecture that has the largest choice of everything.

    Choices that are names have no order, and a space may refuse that combination: then it is the one with most
    multiply-accumulates. (Those alone would not do: heads of BERT add none, and take time.)
    """
    if all(not isinstance(choice, str) for gene in space.genes for choice in gene.choices):
        column = np.array([gene.choices.index(max(gene.choices)) for gene in space.genes], np.uint8)[:, None]
        if activity.valid(space, column).all():
            return np.asarray(activity.canonical(space, column)[:, 0])
    saved = CompiledSum(space, lambda specs: np.array([-float(op_of(spec).work(spec).macs) for spec in specs]))
    return saved.minimum()[1]
