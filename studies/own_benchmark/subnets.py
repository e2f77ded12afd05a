"""Which networks of the space are judged: as many of every third of its range of parameters, drawn by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hwbench.accuracy.benchmark.autoformer_cifar10 import SPACE
from hwbench.core import registry
from hwbench.network.graph import Network
from hwbench.network.spec import OpSpec
from hwbench.network.work import parameter_count, work_of
from hwbench.space import activity
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum
from hwbench.space.lowering import lower

BINS, SEED = 3, 16
DRAWN = 2000
"""At a time, until every bin is full."""


def space() -> Space:
    """The space."""
    return registry.get("space", SPACE)  # type: ignore[no-any-return]


def column(name: str) -> np.ndarray:
    """The genes of an architecture by its name."""
    return np.frombuffer(bytes.fromhex(name), np.uint8)


def largest() -> str:
    """The largest network."""
    return bytes(len(gene.choices) - 1 for gene in space().genes).hex()


def network(name: str) -> Network:
    """Its network."""
    return lower(space(), column(name)).network


@lru_cache(maxsize=1)
def _parameters() -> CompiledSum:
    def count(specs: Sequence[OpSpec]) -> np.ndarray:
        return np.array([float(parameter_count(spec)) for spec in specs])

    return CompiledSum(space(), count)


def parameters(population: Population) -> np.ndarray:
    """Learned values of each architecture."""
    return _parameters()(population).round().astype(int)


def macs(name: str) -> int:
    """Multiply-accumulates of one image."""
    return work_of(network(name)).macs


def bins(population: Population) -> np.ndarray:
    """Which third of the space's range of parameters each lies in."""
    most = column(largest())
    low, high = parameters(np.stack([np.zeros_like(most), most], axis=1))
    return np.asarray(np.minimum((parameters(population) - low) * BINS // (high - low), BINS - 1))


def chosen(per_bin: int) -> list[str]:
    """So many different architectures of every bin; bin after bin, each in the order they were drawn."""
    rng = np.random.default_rng(SEED)
    found: list[dict[str, None]] = [{} for _ in range(BINS)]
    while any(len(mine) < per_bin for mine in found):
        population = activity.sample(space(), DRAWN, rng)
        for genes, place in zip(np.ascontiguousarray(population.T), bins(population), strict=True):
            if len(found[place]) < per_bin:
                found[place][genes.tobytes().hex()] = None
    return [name for mine in found for name in mine]


def in_turn(names: list[str], n: int) -> list[str]:
    """The first n, one of every bin in turn: any beginning of them is spread over all sizes, before any accuracy is known."""
    per_bin = len(names) // BINS
    return [names[place * per_bin + i] for i in range(per_bin) for place in range(BINS)][:n]
