"""FLOPs, in millions: the baseline that every training-free score has to beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hwbench.network.op.base import op_of
from hwbench.network.spec import OpSpec
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


class Flops:
    """More work, better network."""

    name: str
    unit = "million FLOPs"

    def compile(self, space: Space) -> Callable[[Population], np.ndarray]:
        """A compiled sum over the ops."""

        def millions(specs: Sequence[OpSpec]) -> np.ndarray:
            return np.array([op_of(spec).work(spec).flops / 1e6 for spec in specs])

        return CompiledSum(space, millions)
