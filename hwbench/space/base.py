"""What a search space is, and everything that is the same for all of them.

A space lists its genes and lowers an architecture to a Workload. Populations are `uint8[genes, n]`: row g
holds, for n architectures, the index into gene g's choices. While a space lowers, hwbench *records* which
genes each op reads (values carry their genes through arithmetic) and under which genes it exists at all
(`repeat`); the compiled cost, the canonical form and the size of the space follow from that record.

Canonical form: a gene that lowering does not read (layers beyond the depth) is 0. Sampling is uniform over
gene values and then canonicalised, so architectures with fewer active genes are drawn more often each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from hwbench.errors import UsageError
from hwbench.network import Network, NetworkBuilder, OpSpec, Phase, Tensor, Workload

Population = np.ndarray
"""uint8[genes, n], canonical."""
Column = Sequence[int] | np.ndarray
"""One architecture of a population."""
Choice = int | float | str
MAX_CONTROL_STATES = 65_536


@dataclass(frozen=True)
class Gene:
    """One decision: its name, the layer it belongs to (None: the whole network) and its choices."""

    name: str
    choices: tuple[Choice, ...]
    layer: int | None = None

    @property
    def label(self) -> str:
        """`heads[3]` or `depth`."""
        return self.name if self.layer is None else f"{self.name}[{self.layer}]"


def per_layer(name: str, choices: Sequence[Choice], layers: int) -> tuple[Gene, ...]:
    """The same decision for every layer."""
    return tuple(Gene(name, tuple(choices), layer) for layer in range(layers))


class Space(Protocol):
    """The contract of a space."""

    name: str
    genes: tuple[Gene, ...]

    def lower(self, arch: Lowering) -> Workload:
        """The workload of the architecture whose genes `arch` reads."""

    def __hash__(self) -> int:
        """By identity, as any object: what is learnt of a space is kept per instance."""


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
        raise UsageError("A gene's value was compared or looped over while lowering; use arch.repeat(gene) instead.")

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
        self._control: tuple[int, ...] = ()
        self._builder: NetworkBuilder | None = None
        self.read_under: dict[int, frozenset[int]] = {}
        """gene -> the genes that decided whether it is read."""
        self.node_reads: dict[str, tuple[int, ...]] = {}
        """node name -> every gene its existence or shape depends on."""

    def __getitem__(self, key: str | tuple[str, int]) -> Traced:
        gene, value = self._read(key)
        return Traced(value, frozenset({gene}))

    def repeat(self, key: str | tuple[str, int]) -> Iterator[int]:
        """0 .. value-1 of a count gene; what is added inside depends on it beyond the smallest choice."""
        gene, count = self._read(key)
        always = min(int(choice) for choice in self._genes[gene].choices)
        before = self._control
        for i in range(count):
            self._control = before if i < always else (*before, gene)
            yield i
        self._control = before

    def input(self, *tensors: Tensor) -> None:
        """Starts the network with its inputs."""
        self._builder = NetworkBuilder(*tensors)

    def add(self, name: str, op: str, *inputs: str, **dims: Any) -> str:
        """Appends an op; whole-number floats (3.5 * 192) become ints. Returns the tensor's name."""
        if self._builder is None:
            raise UsageError("A space must call arch.input(...) before arch.add(...).")
        reads = set(self._control)
        values: dict[str, Any] = {}
        for dim, value in dims.items():
            if isinstance(value, Traced):
                reads |= value.genes
            bare = plain(value)
            values[dim] = int(bare) if isinstance(bare, float) and bare.is_integer() else bare
        self.node_reads[name] = tuple(sorted(reads))
        return self._builder.add(name, OpSpec.of(op, **values), *inputs)

    def workload(self, output: str) -> Workload:
        """The finished single-phase workload."""
        assert self._builder is not None
        return Workload((Phase(self._builder.build(output)),))

    def _read(self, key: str | tuple[str, int]) -> tuple[int, Any]:
        name, layer = key if isinstance(key, tuple) else (key, None)
        if (name, layer) not in self._index:
            raise UsageError(f"The space reads the gene {key}, which it does not list.")
        gene = self._index[name, layer]
        self.read_under.setdefault(gene, frozenset(self._control))
        return gene, self._genes[gene].choices[self._column[gene]]


@lru_cache(maxsize=None)
def _gene_index(space: Space) -> dict[tuple[str, int | None], int]:
    return {(g.name, g.layer): i for i, g in enumerate(space.genes)}


def lower(space: Space, column: Column) -> Workload:
    """The workload of one architecture (a column of a population)."""
    return space.lower(Lowering(space, [int(v) for v in column]))


@dataclass(frozen=True)
class Activity:
    """Which genes count, as tables over the few genes that decide it."""

    control: tuple[int, ...]
    """Genes that decide whether others are read."""
    tables: Mapping[int, tuple[tuple[int, ...], np.ndarray]] = field(repr=False)
    """gene -> (its deciding genes, uint8 array over their product: 1 where it is read)."""


@lru_cache(maxsize=None)
def activity(space: Space) -> Activity:
    """Learns which genes are read from recorded lowerings, over all states of the deciding genes.

    Lowers a few probes to find the deciding genes (each gene moved alone from both corners), then every
    combination of those.
    """
    sizes = [len(g.choices) for g in space.genes]
    if max(sizes) > 255 or any(s < 1 for s in sizes):
        raise UsageError(f"Space {space.name}: every gene needs 1 to 255 choices.")
    under: dict[int, frozenset[int]] = {}

    def reads(column: Column) -> set[int]:
        record = Lowering(space, column)
        space.lower(record)
        for gene, deciders in record.read_under.items():
            under[gene] = under.get(gene, frozenset()) | deciders
        return set(record.read_under)

    low, high = [0] * len(sizes), [s - 1 for s in sizes]
    for corner in (low, high):
        for gene, size in enumerate(sizes):
            for value in {0, size // 2, size - 1}:
                reads([value if i == gene else corner[i] for i in range(len(sizes))])
    control = tuple(sorted(frozenset().union(*under.values())))
    if math.prod(sizes[g] for g in control) > MAX_CONTROL_STATES:
        raise UsageError(f"Space {space.name}: more than {MAX_CONTROL_STATES} states decide which genes are active.")
    tables = {
        g: (tuple(sorted(under.get(g, ()))), np.zeros([sizes[c] for c in sorted(under.get(g, ()))], np.uint8))
        for g in range(len(sizes))
    }
    for state in itertools.product(*(range(sizes[g]) for g in control)):
        column = list(high)
        for gene, value in zip(control, state, strict=True):
            column[gene] = value
        for gene in reads(column):
            deciders, table = tables[gene]
            table[tuple(column[d] for d in deciders)] = 1
    return Activity(control, tables)


def canonical(space: Space, population: Population) -> Population:
    """The population with inactive genes set to 0 (a new array)."""
    genes = np.array(population, dtype=np.uint8, order="C")
    known = activity(space)
    # Deciding genes first: whether they count themselves settles what depends on them.
    for gene in sorted(known.tables, key=lambda g: (g not in known.control, g)):
        deciders, table = known.tables[gene]
        if table.size and not table.all():
            genes[gene] *= table[tuple(genes[d] for d in deciders)]
    return genes


def size(space: Space) -> int:
    """Exact number of different (canonical) architectures."""
    known = activity(space)
    sizes = [len(g.choices) for g in space.genes]
    total = 0
    for state in itertools.product(*(range(sizes[g]) for g in known.control)):
        at = dict(zip(known.control, state, strict=True))
        count = 1
        for gene, (deciders, table) in known.tables.items():
            active = bool(table[tuple(at[d] for d in deciders)])
            if gene in at:
                count *= 1 if active or at[gene] == 0 else 0
            elif active:
                count *= sizes[gene]
        total += count
    return total


def sample(space: Space, n: int, rng: np.random.Generator) -> Population:
    """Draws n architectures, uniform over gene values, canonicalised."""
    return canonical(space, _draw(space, n, rng))


def _draw(space: Space, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack([rng.integers(0, len(g.choices), n, dtype=np.uint8) for g in space.genes])


def mutate(space: Space, parents: Population, rate: float, rng: np.random.Generator) -> Population:
    """Each gene is redrawn with probability `rate`; at least one is redrawn in every architecture."""
    genes, n = parents.shape
    chosen = rng.random((genes, n)) < rate
    chosen[rng.integers(0, genes, n), np.arange(n)] = True
    return canonical(space, np.where(chosen, _draw(space, n, rng), parents))


def crossover(space: Space, first: Population, second: Population, rng: np.random.Generator) -> Population:
    """Each gene comes from one parent or the other with equal chance."""
    return canonical(space, np.where(rng.random(first.shape) < 0.5, first, second))


def neighbours(space: Space, column: Column) -> Population:
    """Every different canonical architecture that differs from this one in one gene's value."""
    start = canonical(space, np.asarray(column, np.uint8)[:, None])[:, 0]
    moved = [start]
    for gene, choices in enumerate(len(g.choices) for g in space.genes):
        for value in range(choices):
            if value != start[gene]:
                moved.append(start.copy())
                moved[-1][gene] = value
    found = np.unique(canonical(space, np.stack(moved, axis=1)), axis=1)
    return found[:, (found != start[:, None]).any(axis=0)]


def keys(population: Population) -> list[bytes]:
    """A hashable identity per architecture."""
    rows = np.ascontiguousarray(population.T)
    return [row.tobytes() for row in rows]


def to_values(space: Space, column: Column) -> dict[str, Any]:
    """The architecture as an architecture file states it: values, per-layer lists up to the last active layer.

    A layer that is inactive before an active one is null.
    """
    record = Lowering(space, [int(v) for v in column])
    space.lower(record)
    values: dict[str, Any] = {}
    for i, gene in enumerate(space.genes):
        value = gene.choices[int(column[i])] if i in record.read_under else None
        if gene.layer is not None:
            values.setdefault(gene.name, []).append(value)
        elif value is not None:
            values[gene.name] = value
    for listed in values.values():
        while isinstance(listed, list) and listed and listed[-1] is None:
            listed.pop()
    return values


def from_values(space: Space, values: Mapping[str, Any]) -> np.ndarray:
    """The canonical column of an architecture given as values.

    Raises:
        UsageError: a gene is missing, unknown, has a value outside its choices or a list of wrong length.
    """
    names = dict.fromkeys(g.name for g in space.genes)
    foreign = [name for name in values if name not in names]
    if foreign:
        raise UsageError(f"Architecture of {space.name}: unknown entry '{foreign[0]}'; it has {', '.join(names)}.")
    column = np.zeros(len(space.genes), np.uint8)
    for i, gene in enumerate(space.genes):
        given = values.get(gene.name)
        if gene.layer is not None:
            if not isinstance(given, list):
                raise UsageError(f"Architecture of {space.name}: '{gene.name}' must be a list, one value per layer.")
            given = given[gene.layer] if gene.layer < len(given) else None
        if given is not None:
            if given not in gene.choices:
                raise UsageError(f"Architecture of {space.name}: {gene.label} = {given!r} is not one of {list(gene.choices)}.")
            column[i] = gene.choices.index(given)
    found = canonical(space, column[:, None])[:, 0]
    _check_complete(space, to_values(space, found), values)
    return found


def _check_complete(space: Space, wanted: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Every active gene was given, and nothing for an inactive one."""
    for name, value in wanted.items():
        given = values.get(name)
        if given is None:
            raise UsageError(f"Architecture of {space.name}: '{name}' is missing.")
        if isinstance(value, list) and len(value) != len(given):
            raise UsageError(f"Architecture of {space.name}: '{name}' has {len(given)} values, needs {len(value)}.")
        if value != given:
            raise UsageError(f"Architecture of {space.name}: '{name}' is {given}, but only {value} is active.")
    extra = [name for name in values if name not in wanted and values[name] is not None]
    if extra:
        raise UsageError(f"Architecture of {space.name}: '{extra[0]}' has no effect here; leave it out.")


def networks(space: Space, population: Population) -> Iterable[Network]:
    """The whole networks of a population, one at a time."""
    return (lower(space, column).network for column in population.T)


def distinct_specs(space: Space) -> list[OpSpec]:
    """Every op key any architecture of the space can need, sorted.

    Found from the record: for each node all combinations of the genes it reads, so the list is complete
    without enumerating architectures.
    """
    return sorted({spec for table in slots(space) for spec in table.specs if spec is not None}, key=lambda s: s.key)


@dataclass(frozen=True)
class Slot:
    """One node of the space's networks over all combinations of the genes it reads."""

    node: str
    genes: tuple[int, ...]
    shape: tuple[int, ...]
    specs: tuple[OpSpec | None, ...]
    """Row-major over `genes`; None where the node does not exist."""
    repeat: int


MAX_SLOT_STATES = 65_536


@lru_cache(maxsize=None)
def slots(space: Space) -> tuple[Slot, ...]:
    """Records every node over all combinations of the genes it reads, with few lowerings.

    One lowering settles one combination of every node at once; the next architecture is put together
    greedily from combinations still open. Checked against plain lowering by the contract tests.
    """
    sizes = [len(g.choices) for g in space.genes]
    reads: dict[str, tuple[int, ...]] = {}
    seen: dict[str, dict[tuple[int, ...], OpSpec | None]] = {}
    open_states: dict[str, list[tuple[int, ...]]] = {}
    repeats: dict[str, int] = {}

    def record(column: list[int]) -> None:
        lowering = Lowering(space, column)
        workload = space.lower(lowering)
        for phase in workload.phases:
            repeats.update({node.name: phase.repeat for node in phase.network.nodes})
        found = {node.name: node.spec for phase in workload.phases for node in phase.network.nodes}
        for name, genes in lowering.node_reads.items():
            if not set(genes) <= set(reads.get(name, ())):
                reads[name] = tuple(sorted(set(genes) | set(reads.get(name, ()))))
                shape = [sizes[g] for g in reads[name]]
                if math.prod(shape) > MAX_SLOT_STATES:
                    raise UsageError(
                        f"Space {space.name}: node {name} depends on {len(shape)} genes with too many combinations."
                    )
                seen[name] = {}
                open_states[name] = list(itertools.product(*(range(s) for s in shape)))
            elif name not in seen:
                reads[name], seen[name], open_states[name] = (), {}, [()]
        for name, genes in reads.items():
            state = tuple(column[g] for g in genes)
            if state not in seen[name]:
                seen[name][state] = found.get(name)

    record([s - 1 for s in sizes])
    record([0] * len(sizes))
    while True:
        column: dict[int, int] = {}
        progress = False
        for name in reads:
            states, known = open_states[name], seen[name]
            while states and states[-1] in known:
                states.pop()
            for state in reversed(states):
                pairs = list(zip(reads[name], state, strict=True))
                if state not in known and all(column.get(g, v) == v for g, v in pairs):
                    column.update(pairs)
                    progress = True
                    break
        if not progress:
            break
        record([column.get(g, sizes[g] - 1) for g in range(len(sizes))])
    return tuple(
        Slot(
            name,
            genes,
            tuple(sizes[g] for g in genes),
            tuple(seen[name][state] for state in itertools.product(*(range(sizes[g]) for g in genes))),
            repeats[name],
        )
        for name, genes in reads.items()
    )
