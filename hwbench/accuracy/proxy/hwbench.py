"""hwbench's own score: the effective width of every block, added up, blocks early in their stage first.

    score   sum over stages, over their blocks i = 1 ... n, of   (1 + EARLY (1 - (2 i - 1) / n)) * (w_i p_i)^(1/3)

w is the width that comes out of a block (channels), p its matrices' and convolutions' weights. A plain square layer has p = w^2
and counts w; a block that is larger gains by the cube root only: so depth counts fully, width as much, and what stands inside
a block less than both (parameters count depth once, width twice, and what stands inside a block as much as depth). Early blocks
of a stage count more, as all later ones work on what they add: the first three times as much as the last.

A block is a node of a network that has weights, in which something bends (an activation function, a softmax) or tokens meet by
a fixed transform, and that leaves more than one place: projections, pooling and patches are changes of basis, and a head's size
is set by the task. A stage is a run of blocks of one width. Phases of a workload add up.

Nothing is drawn and no network is run: a score is absolute, and the same for vision and language.
Form and constants were chosen on one half of three public tables and judged once on the other: reports/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from math import cbrt, prod

import numpy as np

from hwbench.network.graph import Network
from hwbench.network.op.base import op_of, single
from hwbench.network.spec import OpSpec
from hwbench.network.work import primitives
from hwbench.space.base import Population, Space
from hwbench.space.lowering import lower

EARLY = 0.5
"""How much more than the mean the first block of a long stage counts, and how much less the last."""
WORKING = frozenset({"gelu", "relu", "silu", "tanh", "map_relu", "map_silu", "softmax", "spectral_transform"})
"""Primitives that bend, or in which tokens meet without weights."""


class Hwbench:
    """Wide, deep, and neither in vain."""

    name: str
    unit = "channels of all blocks"

    def compile(self, space: Space) -> Callable[[Population], np.ndarray]:
        """Network by network, from sizes alone; NaN for one without a block."""

        def scores(population: Population) -> np.ndarray:
            loads = (lower(space, column) for column in population.T)
            return np.array([_score([blocks(phase.network) for phase in load.phases]) for load in loads], float)

        return scores


def _score(phases: list[list[tuple[int, int]]]) -> float:
    """Of the blocks of all phases."""
    if not any(phases):
        return float("nan")
    return sum(_stage([width * size for width, size in run]) for found in phases for _, run in groupby(found, lambda b: b[0]))


def _stage(of: list[int]) -> float:
    """Of blocks of one width, each stated as width x weights."""
    n = len(of)
    return sum((1 + EARLY * (1 - (2 * i + 1) / n)) * cbrt(each) for i, each in enumerate(of))


def blocks(network: Network) -> list[tuple[int, int]]:
    """(width, weights) of every block, in running order."""
    return [block for node in network.nodes if (block := block_of(node.spec)) is not None]


@lru_cache(maxsize=None)
def block_of(spec: OpSpec) -> tuple[int, int] | None:
    """(width, weights) of a node that is a block."""
    op = op_of(spec)
    weights = sum(prod(each.shape) for each in op.parameters(spec) if len(each.shape) > 1 and not each.table)
    shape = op.signature(spec)[1][0].shape
    width, places = (shape[0], prod(shape[1:])) if len(shape) == 3 else (shape[-1], prod(shape[:-1]))
    works = any(part.op in WORKING for part in primitives(single(spec)))
    return (width, weights) if weights and works and places > 1 else None
