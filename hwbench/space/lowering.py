"""Lowering: an architecture becomes ops, and who read which gene is recorded.

While a space lowers, hwbench *records* which genes each op reads (values carry their genes through arithmetic) and under
which genes it exists at all (`repeat`, `under`, `choose`); the compiled cost, the canonical form and the size of the space
follow from that record. One lowering shows one way through the space's code; `record` takes them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hwbench.core.errors import UsageError
from hwbench.network.graph import Network, NetworkBuilder, Phase, Tensor, Workload
from hwbench.network.spec import OpSpec
from hwbench.space.base import Column, Population, Space

Context = tuple[tuple[int, bool], ...]
"""Genes that something depends on, in order: True where on the value, False where only on its being 0 (absent) or not."""
PARTS_TOGETHER = 10
"""Optional parts asked one after the other, of which every combination is tried."""


def context_of(control: Mapping[int, bool]) -> Context:
    """The genes in order."""
    return tuple(sorted(control.items()))


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
        self._control: Mapping[int, bool] = {}
        self._context: Context = ()
        self._asked: tuple[int, ...] = ()
        self._builder: NetworkBuilder | None = None
        self.contexts: set[Context] = set()
        """All that was branched on: the genes of every branch taken and of those around it."""
        self.read_under: dict[int, set[Context]] = {}
        """gene -> what decided that it is read, wherever it is."""
        self.node_reads: dict[str, tuple[Context, frozenset[int]]] = {}
        """node name -> (what decided that it exists, the genes its dimensions were computed from)."""
        self.refused_under: set[Context] = set()
        """What decided that this is no network: nothing leads from input to output."""

    def __getitem__(self, key: str | tuple[str, int]) -> Traced:
        gene, value = self._read(key)
        return Traced(value, frozenset({gene}))

    @contextmanager
    def _inside(self, control: Mapping[int, bool]) -> Iterator[None]:
        """What is added, read or asked meanwhile depends on these genes."""
        before = self._control, self._context, self._asked
        if control is not self._control:
            self._control, self._context = control, context_of(control)
            self.contexts.add(self._context)
        try:
            yield
        finally:
            self._control, self._context, self._asked = before

    def repeat(self, key: str | tuple[str, int]) -> Iterator[int]:
        """0 .. value-1 of a count gene; what is added inside depends on it beyond the smallest choice."""
        gene, count = self._read(key)
        always = min(int(choice) for choice in self._genes[gene].choices)
        beyond = {**self._control, gene: True}
        self.contexts.add(context_of(beyond))
        for i in range(count):
            with self._inside(self._control if i < always else beyond):
                yield i

    def present(self, key: str | tuple[str, int]) -> bool:
        """Whether an optional part exists: its gene is not at its first choice, which stands for nothing being there.

        Such parts may decide about each other, as the edges of a cell do. One that exists counts as read only where
        `choose` asks what it is; where nobody does, it might as well be absent. What follows from the answer belongs
        inside `under`.
        """
        gene = self._gene(key)
        self._asked = (*(g for g in self._asked if g != gene), gene)[-PARTS_TOGETHER:]
        self.contexts.add(context_of(self._with_parts()))
        if self._column[gene] == 0:
            self._read(key)
        return bool(self._column[gene] != 0)

    def under(self, *keys: str | tuple[str, int]) -> AbstractContextManager[None]:
        """What is added or read inside depends on which of these optional parts are present."""
        return self._inside({**{self._gene(key): False for key in keys}, **self._control})

    @contextmanager
    def choose(self, key: str | tuple[str, int]) -> Iterator[Any]:
        """The plain value of a gene, to branch on; what is added or read inside depends on it."""
        gene, value = self._read(key)
        with self._inside({**self._control, gene: True}):
            yield value

    def refuse(self) -> None:
        """Says that this architecture is no network, as nothing leads from input to output: it lowers but is not `valid`.

        That depends on the choices it is called under, and on the optional parts asked about before it in the same layer.
        """
        here = context_of(self._with_parts())
        self.contexts.add(here)
        self.refused_under.add(here)

    def input(self, *tensors: Tensor) -> None:
        """Starts the network with its inputs."""
        self._builder = NetworkBuilder(*tensors)

    def add(self, name: str, op: str, *inputs: str, precision: Any = None, **dims: Any) -> str:
        """Appends an op; whole-number floats (3.5 * 192) become ints. Returns the tensor's name.

        Args:
            name: Of the node.
            op: Key of the op.
            inputs: Tensors it reads.
            precision: Its own number format; None: that of the setting.
            dims: Of the op; values made from genes remember them.
        """
        if self._builder is None:
            raise UsageError("A space must call arch.input(...) before arch.add(...).")
        values: dict[str, Any] = {}
        for dim, value in dims.items():
            bare = plain(value)
            values[dim] = int(bare) if isinstance(bare, float) and bare.is_integer() else bare
        read = [value.genes for value in (*dims.values(), precision) if isinstance(value, Traced)]
        self.node_reads[name] = self._context, frozenset().union(*read)
        return self._builder.add(name, OpSpec.of(op, **values).in_format(plain(precision)), *inputs)

    def workload(self, output: str) -> Workload:
        """The finished single-phase workload."""
        assert self._builder is not None
        return Workload((Phase(self._builder.build(output)),))

    def _read(self, key: str | tuple[str, int]) -> tuple[int, Any]:
        gene = self._gene(key)
        here = self._context
        if gene in self._asked:
            here = context_of({gene: False, **self._control})
            self.contexts.add(here)
        self.read_under.setdefault(gene, set()).add(here)
        return gene, self._genes[gene].choices[self._column[gene]]

    def _with_parts(self) -> Mapping[int, bool]:
        """The choices made here and the optional parts asked about."""
        return {**dict.fromkeys(self._asked, False), **self._control}

    def _gene(self, key: str | tuple[str, int]) -> int:
        name, layer = key if isinstance(key, tuple) else (key, None)
        if (name, layer) not in self._index:
            raise UsageError(f"The space reads the gene {key}, which it does not list.")
        return self._index[name, layer]


def state_of(genes: Column, context: Context) -> tuple[int, ...]:
    """What can be seen of an architecture; read as genes, a state is an architecture that shows it."""
    return tuple(genes[gene] if whole else min(genes[gene], 1) for gene, whole in context)


@lru_cache(maxsize=None)
def _gene_index(space: Space) -> dict[tuple[str, int | None], int]:
    return {(g.name, g.layer): i for i, g in enumerate(space.genes)}


def lower(space: Space, column: Column) -> Workload:
    """The workload of one architecture (a column of a population)."""
    return space.lower(Lowering(space, [int(v) for v in column]))


def networks(space: Space, population: Population) -> Iterable[Network]:
    """The whole networks of a population, one at a time."""
    return (lower(space, column).network for column in population.T)
