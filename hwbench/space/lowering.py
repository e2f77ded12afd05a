"""Lowering: an architecture becomes ops, and who read which gene is recorded.

While a space lowers, hwbench *records* which genes each op reads (values carry their genes through arithmetic) and under
which genes it exists at all (`repeat`, `under`, `choose`); the compiled cost, the canonical form and the size of the space
follow from that record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.graph import Network, NetworkBuilder, Phase, Tensor, Workload
from hwbench.network.spec import OpSpec
from hwbench.space.base import Column, Population, Space

Dependency = dict[int, bool]
"""Genes that something depends on: True where on the value, False where only on its being 0 (absent) or not."""


@dataclass(frozen=True, eq=False)
class Traced:
    """A value that remembers which genes it came from.

    Arithmetic keeps the memory; comparing or looping over it would hide a dependency and is refused
    (use `Lowering.repeat` or pass the value to `Lowering.add`).
    """

    value: Any
    genes: frozenset[int]

    def _with(self, other: Any, result: Any) -> Traced:
        return Traced(result, self.genes | (other.genes if isinstance(other, Traced) else frozenset()))

    def __add__(self, other: Any) -> Traced:
        return self._with(other, self.value + plain(other))

    def __mul__(self, other: Any) -> Traced:
        return self._with(other, self.value * plain(other))

    def __sub__(self, other: Any) -> Traced:
        return self._with(other, self.value - plain(other))

    def __floordiv__(self, other: Any) -> Traced:
        return self._with(other, self.value // plain(other))

    def __rfloordiv__(self, other: Any) -> Traced:
        return self._with(other, plain(other) // self.value)

    __radd__ = __add__
    __rmul__ = __mul__

    def _refuse(self, *_: object) -> Any:
        raise UsageError("A gene's value was compared or looped over while lowering; use arch.repeat or arch.choose instead.")

    __bool__ = __index__ = __int__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def plain(value: Any) -> Any:
    """The value without its memory."""
    return value.value if isinstance(value, Traced) else value


class Lowering:
    """One architecture being lowered: hands out gene values, collects ops, records who read what."""

    def __init__(self, space: Space, column: Column) -> None:
        self._genes = space.genes
        self._index = _gene_index(space)
        self._column = column
        self._control: Dependency = {}
        self._builder: NetworkBuilder | None = None
        self.read_under: dict[int, Dependency] = {}
        """gene -> the genes that decided whether it is read."""
        self.node_reads: dict[str, Dependency] = {}
        """node name -> every gene its existence or shape depends on."""
        self.is_network = True
        """Whether the output depends on the input at all."""

    def __getitem__(self, key: str | tuple[str, int]) -> Traced:
        gene, value = self._read(key)
        return Traced(value, frozenset({gene}))

    def repeat(self, key: str | tuple[str, int]) -> Iterator[int]:
        """0 .. value-1 of a count gene; what is added inside depends on it beyond the smallest choice."""
        gene, count = self._read(key)
        always = min(int(choice) for choice in self._genes[gene].choices)
        before = self._control
        for i in range(count):
            self._control = before if i < always else {**before, gene: True}
            yield i
        self._control = before

    def present(self, key: str | tuple[str, int]) -> bool:
        """Whether an optional part exists: its gene is not at its first choice, which stands for nothing being there.

        Such parts may decide about each other, as the edges of a cell do. One that exists counts as read only where
        `choose` asks what it is; where nobody does, it might as well be absent. What follows from the answer belongs
        inside `under`.
        """
        gene = self._gene(key)
        if self._column[gene] == 0:
            self.read_under.setdefault(gene, {gene: False, **self._control})
        return bool(self._column[gene] != 0)

    @contextmanager
    def under(self, *keys: str | tuple[str, int]) -> Iterator[None]:
        """What is added or read inside depends on which of these optional parts are present."""
        before = self._control
        self._control = {**{self._gene(key): False for key in keys}, **before}
        yield
        self._control = before

    @contextmanager
    def choose(self, key: str | tuple[str, int]) -> Iterator[Any]:
        """The plain value of a gene, to branch on; what is added or read inside depends on it."""
        gene, value = self._read(key)
        before = self._control
        self._control = {**before, gene: True}
        yield value
        self._control = before

    def refuse(self) -> None:
        """Says that this architecture is no network, as nothing leads from input to output: it lowers but is not `valid`."""
        self.is_network = False

    def input(self, *tensors: Tensor) -> None:
        """Starts the network with its inputs."""
        self._builder = NetworkBuilder(*tensors)

    def add(self, name: str, op: str, *inputs: str, **dims: Any) -> str:
        """Appends an op; whole-number floats (3.5 * 192) become ints. Returns the tensor's name."""
        if self._builder is None:
            raise UsageError("A space must call arch.input(...) before arch.add(...).")
        reads = dict(self._control)
        values: dict[str, Any] = {}
        for dim, value in dims.items():
            if isinstance(value, Traced):
                reads.update(dict.fromkeys(value.genes, True))
            bare = plain(value)
            values[dim] = int(bare) if isinstance(bare, float) and bare.is_integer() else bare
        self.node_reads[name] = reads
        return self._builder.add(name, OpSpec.of(op, **values), *inputs)

    def workload(self, output: str) -> Workload:
        """The finished single-phase workload."""
        assert self._builder is not None
        return Workload((Phase(self._builder.build(output)),))

    def _read(self, key: str | tuple[str, int]) -> tuple[int, Any]:
        gene = self._gene(key)
        self.read_under.setdefault(gene, self._control)
        return gene, self._genes[gene].choices[self._column[gene]]

    def _gene(self, key: str | tuple[str, int]) -> int:
        name, layer = key if isinstance(key, tuple) else (key, None)
        if (name, layer) not in self._index:
            raise UsageError(f"The space reads the gene {key}, which it does not list.")
        return self._index[name, layer]


def join_dependencies(first: Dependency, second: Dependency) -> Dependency:
    """All that either sees, the value where one of them sees that; in the order of the genes."""
    return {g: first.get(g, False) or second.get(g, False) for g in sorted({*first, *second})}


def state_of(genes: Mapping[int, int], dependency: Dependency) -> tuple[int, ...]:
    """What can be seen of an architecture."""
    return tuple(genes[g] if whole else min(genes[g], 1) for g, whole in dependency.items())


def all_states(sizes: Sequence[int], dependency: Dependency) -> Iterator[tuple[int, ...]]:
    """All that can be seen of any architecture; read as genes, a state is an architecture that shows it."""
    return itertools.product(*(range(sizes[g] if whole else min(sizes[g], 2)) for g, whole in dependency.items()))


def table_of(sizes: Sequence[int], dependency: Dependency, values: Mapping[tuple[int, ...], Any], dtype: Any) -> np.ndarray:
    """Values of states as an array over all choices of the genes seen; what no state was seen for is 0."""
    table = np.zeros([sizes[g] if whole else min(sizes[g], 2) for g, whole in dependency.items()], dtype)
    for state, value in values.items():
        table[state] = value
    if all(dependency.values()):
        return table
    return table[np.ix_(*(np.minimum(np.arange(sizes[g]), sizes[g] if whole else 1) for g, whole in dependency.items()))]


@lru_cache(maxsize=None)
def _gene_index(space: Space) -> dict[tuple[str, int | None], int]:
    return {(g.name, g.layer): i for i, g in enumerate(space.genes)}


def lower(space: Space, column: Column) -> Workload:
    """The workload of one architecture (a column of a population)."""
    return space.lower(Lowering(space, [int(v) for v in column]))


def networks(space: Space, population: Population) -> Iterable[Network]:
    """The whole networks of a population, one at a time."""
    return (lower(space, column).network for column in population.T)
