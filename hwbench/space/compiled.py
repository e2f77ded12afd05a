"""Sums and maxima over ops, compiled: what adds over the ops of a space's networks, or is the largest, as a few look-ups.

What each op has, over all combinations of the genes it reads (recorded while the space lowers), becomes a table; tables are
merged while they stay small enough for the first-level cache, and a population is scored by a handful of look-ups without a
Python loop per architecture.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor, spread
from hwbench.network.spec import OpSpec
from hwbench.space import activity, slots
from hwbench.space.base import Population, Space
from hwbench.space.elimination import least

MERGED_ENTRIES = 4096
"""Largest merged table: 32 KiB of float64, what a first-level cache holds."""
CHUNK = 16_384
"""Architectures scored at a time, so that index buffers stay in the cache."""


class _Compiled(ABC):
    """Values of ops, combined over a network by an operation that does not care about order, as a few table look-ups."""

    combine: np.ufunc
    nothing: float
    """What an op that is not there has: it changes no combination."""

    def __init__(self, space: Space, op_value: Callable[[Sequence[OpSpec]], np.ndarray], constant: float) -> None:
        self._space = space
        specs = slots.distinct_specs(space)
        values = self._values = dict(zip(specs, np.asarray(op_value(specs), float), strict=True))
        tables: dict[tuple[int, ...], np.ndarray] = {}
        for slot in slots.slots(space):
            cells = [self.nothing if spec is None else self._repeated(values[spec], slot.repeat) for spec in slot.specs]
            table = np.array(cells, float).reshape(slot.shape)
            tables[slot.genes] = self.combine(tables[slot.genes], table) if slot.genes in tables else table
        self.constant = float(self.combine(constant, tables.pop((), np.array(self.nothing))))
        self._tables = tables
        self.factors = tuple(tables.items())
        """(genes, what each combination of their choices has; it is combined with `constant`)."""
        self._merged = _merge(tables, [len(g.choices) for g in space.genes], self.combine, self.nothing)

    @abstractmethod
    def _repeated(self, value: float, times: int) -> float:
        """What an op has that is run several times."""

    def __call__(self, population: Population) -> np.ndarray:
        """The combination for every architecture."""
        n = population.shape[1]
        if population.dtype != np.uint8 or population.shape[0] != len(self._space.genes):
            raise UsageError(f"A population of {self._space.name} is uint8[{len(self._space.genes)}, n].")
        total = np.empty(n)
        found = np.empty(min(n, CHUNK))
        for start in range(0, n, CHUNK):
            chunk = population[:, start : start + CHUNK]
            out = total[start : start + CHUNK]
            part = found[: chunk.shape[1]]
            out.fill(self.constant)
            for lookup in self._merged:
                # Indices are valid by construction; "clip" only spares numpy a second buffer.
                np.take(lookup.table, lookup.index(chunk), out=part, mode="clip")
                self.combine(out, part, out=out)
        return total

    @property
    def lookups(self) -> int:
        """Table look-ups per architecture."""
        return len(self._merged)

    def minimum(self) -> tuple[float, np.ndarray]:
        """The smallest combination any architecture that is a network reaches, exactly, and the architecture (canonical)."""
        return _least(self._space, list(self.factors), self.constant, self.combine, self.nothing)


class CompiledMaximum(_Compiled):
    """The largest value of any op as a few table look-ups; an op that is run several times counts once."""

    combine, nothing = np.maximum, -math.inf

    def __init__(self, space: Space, op_value: Callable[[Sequence[OpSpec]], np.ndarray]) -> None:
        """Compiles; `op_value` tells the value of each op of a list."""
        super().__init__(space, op_value, -math.inf)

    def _repeated(self, value: float, times: int) -> float:
        return value


class CompiledSum(_Compiled):
    """A sum over ops as a few table look-ups."""

    combine, nothing = np.add, 0.0

    def __init__(self, space: Space, op_value: Callable[[Sequence[OpSpec]], np.ndarray], constant: float = 0.0) -> None:
        """Compiles.

        Args:
            space: The search space.
            op_value: The value of each op of a list.
            constant: Added once per architecture.
        """
        super().__init__(space, op_value, constant)

    def _repeated(self, value: float, times: int) -> float:
        return times * value

    def by_node(self, population: Population) -> dict[str, np.ndarray]:
        """Node -> what it adds to every architecture, NaN where it is not there."""
        found = {}
        for slot in slots.slots(self._space):
            cells = [math.nan if spec is None else self._repeated(self._values[spec], slot.repeat) for spec in slot.specs]
            found[slot.node] = np.array(cells, float).reshape(slot.shape)[tuple(population[list(slot.genes)])]
        return {node: np.broadcast_to(values, population.shape[1]) for node, values in found.items()}

    @property
    def tables(self) -> Mapping[tuple[int, ...], np.ndarray]:
        """Genes -> what each combination of their choices adds to `constant`; every gene also has a table of its own."""
        alone: dict[tuple[int, ...], np.ndarray] = {
            (gene,): np.zeros(len(g.choices)) for gene, g in enumerate(self._space.genes)
        }
        return {**alone, **self._tables}


def least_together(space: Space, parts: Sequence[tuple[float, CompiledSum]]) -> tuple[float, np.ndarray]:
    """The smallest weighted sum of compiled sums any architecture that is a network reaches, exactly, and the architecture."""
    factors = [(genes, weight * table) for weight, part in parts for genes, table in part.factors]
    return _least(space, factors, sum(weight * part.constant for weight, part in parts), np.add, 0.0)


def _least(
    space: Space, factors: Sequence[Factor], constant: float, combine: np.ufunc, nothing: float
) -> tuple[float, np.ndarray]:
    """The smallest combination of factors and constant that a network reaches, and which."""
    refused = [(genes, np.where(table, np.inf, nothing)) for genes, table in activity.activity(space).refusals]
    sizes = [len(g.choices) for g in space.genes]
    best, column = least([*factors, *refused], sizes, constant, combine, nothing, space.name)
    return best, activity.canonical(space, column[:, None])[:, 0]


@dataclass(frozen=True)
class _Lookup:
    """One merged table and the genes that index it, in runs whose products fit a byte."""

    table: np.ndarray
    runs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Each run: (genes, their sizes)."""

    def index(self, chunk: Population) -> np.ndarray:
        """Row-major index of every architecture, by Horner's rule on bytes, widened between runs."""
        whole: np.ndarray | None = None
        for genes, sizes in self.runs:
            run = chunk[genes[0]]
            for gene, size in zip(genes[1:], sizes[1:], strict=True):
                run = run * np.uint8(size)
                run += chunk[gene]
            if whole is None:
                whole = run
            else:
                whole = whole * np.uint16(math.prod(sizes))
                whole += run
        assert whole is not None
        return whole


def _merge(tables: dict[tuple[int, ...], np.ndarray], sizes: Sequence[int], combine: np.ufunc, nothing: float) -> list[_Lookup]:
    """Joins tables while their product of genes stays within MERGED_ENTRIES."""
    clusters: list[tuple[tuple[int, ...], list[tuple[tuple[int, ...], np.ndarray]]]] = []
    for genes, table in sorted(tables.items(), key=lambda item: (item[0][-1], len(item[0]), item[0])):
        for i, (union, members) in enumerate(clusters):
            joined = tuple(sorted({*union, *genes}))
            if math.prod(sizes[g] for g in joined) <= MERGED_ENTRIES:
                clusters[i] = (joined, [*members, (genes, table)])
                break
        else:
            clusters.append((genes, [(genes, table)]))
    lookups = []
    for union, members in clusters:
        whole = np.full([sizes[g] for g in union], nothing)
        for genes, table in members:
            whole = combine(whole, spread(table, genes, union, sizes))
        lookups.append(_Lookup(np.ascontiguousarray(whole.ravel()), _byte_runs(union, sizes)))
    return lookups


def _byte_runs(genes: tuple[int, ...], sizes: Sequence[int]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    runs: list[list[int]] = [[]]
    product = 1
    for gene in genes:
        if runs[-1] and product * sizes[gene] > 256:
            runs.append([])
            product = 1
        runs[-1].append(gene)
        product *= sizes[gene]
    return tuple((tuple(run), tuple(sizes[g] for g in run)) for run in runs)
