"""Non-embedding parameters, in millions.

LiteTransformerSearch (Javaheripi et al. 2022) found the decoder's parameter count without embeddings to rank
Transformers by quality. Lookup tables (words, positions, class token) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hwbench.network.spec import OpSpec
from hwbench.network.work import parameter_count
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


class Params:
    """More parameters, better network."""

    name: str
    unit = "million parameters"

    def compile(self, space: Space) -> Callable[[Population], np.ndarray]:
        """A compiled sum over the ops."""

        def millions(specs: Sequence[OpSpec]) -> np.ndarray:
            return np.array([parameter_count(spec, tables=False) / 1e6 for spec in specs])

        return CompiledSum(space, millions)
