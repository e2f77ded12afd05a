"""Width: channels between blocks, averaged over the blocks with a residual sum. A baseline for training-free scores.

Of a ViT it is the embedding's width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hwbench.network.op.base import op_of, single
from hwbench.network.spec import OpSpec
from hwbench.network.work import primitives
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum

SUMS = ("add", "map_add")


class Width:
    """Wider is better."""

    name: str
    unit = "channels"

    def compile(self, space: Space) -> Callable[[Population], np.ndarray]:
        """The ratio of two compiled sums; NaN for a network without such a block."""
        channels = CompiledSum(space, lambda specs: _of_blocks(specs, _channels))
        blocks = CompiledSum(space, lambda specs: _of_blocks(specs, lambda spec: 1))

        def widths(population: Population) -> np.ndarray:
            count = np.asarray(blocks(population))
            return np.where(count > 0, channels(population) / np.maximum(count, 1), np.nan)

        return widths


def _of_blocks(specs: Sequence[OpSpec], value: Callable[[OpSpec], int]) -> np.ndarray:
    return np.array([value(spec) if _sums(spec) else 0 for spec in specs], float)


def _sums(spec: OpSpec) -> bool:
    return any(part.op in SUMS for part in primitives(single(spec)))


def _channels(spec: OpSpec) -> int:
    """The last axis of tokens, the first of a map."""
    shape = op_of(spec).signature(spec)[1][0].shape
    return shape[0] if len(shape) == 3 else shape[-1]
