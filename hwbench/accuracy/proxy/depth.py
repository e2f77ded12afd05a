"""Depth: linear layers and convolutions on the longest way from input to output. A baseline for training-free scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from hwbench.network.graph import Network
from hwbench.network.op.base import op_of
from hwbench.network.spec import OpSpec
from hwbench.space.base import Population, Space
from hwbench.space.lowering import lower


class Depth:
    """Deeper is better."""

    name: str
    unit = "layers with weights"

    def compile(self, space: Space) -> Callable[[Population], np.ndarray]:
        """Along the graph of every network, phases one after the other."""

        def depths(population: Population) -> np.ndarray:
            loads = (lower(space, column) for column in population.T)
            return np.array([sum(_longest(phase.network) for phase in load.phases) for load in loads], float)

        return depths


def _longest(network: Network) -> int:
    known = dict.fromkeys((tensor.name for tensor in network.inputs), 0)
    for node in network.nodes:
        before = max((known[name.partition(":")[0]] for name in node.inputs), default=0)
        known[node.name] = before + _inside(node.spec)
    return max(known[name.partition(":")[0]] for name in network.outputs)


@lru_cache(maxsize=None)
def _inside(spec: OpSpec) -> int:
    """Of one op: a block's own longest way; a primitive counts where it has a matrix that is no lookup table."""
    op = op_of(spec)
    inner = op.expand(spec)
    if inner.specs != (spec,):
        return _longest(inner)
    return int(any(len(parameter.shape) > 1 and not parameter.table for parameter in op.parameters(spec)))
