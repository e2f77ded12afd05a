"""What a search space is, and everything that is the same for all of them.

A space lists its genes and lowers an architecture to a Workload. Populations are `uint8[genes, n]`: row g
holds, for n architectures, the index into gene g's choices. While a space lowers, hwbench *records* which
genes each op reads (values carry their genes through arithmetic) and under which genes it exists at all
(`repeat`, `under`, `choose`); the compiled cost, the canonical form and the size of the space follow from that record.

Canonical form: a gene that lowering does not read (layers beyond the depth, edges of a cell that lead nowhere) is 0.
Sampling is uniform over gene values and then canonicalised, so architectures with fewer active genes are drawn more
often each. A space may `refuse` an architecture (a cell without a way through): it has a form, but is no network.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from typing import Any, Protocol

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.network.graph import Network, NetworkBuilder, Phase, Tensor, Workload
from hwbench.network.spec import OpSpec
from hwbench.problem import Problem

Population = np.ndarray
"""uint8[genes, n], canonical."""
Column = Sequence[int] | np.ndarray
"""One architecture of a population."""
Choice = int | float | str
Sight = dict[int, bool]
"""Genes that something depends on: True where on the value, False where only on its being 0 (absent) or not."""
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
        self._control: Sight = {}
        self._builder: NetworkBuilder | None = None
        self.read_under: dict[int, Sight] = {}
        """gene -> the genes that decided whether it is read."""
        self.node_reads: dict[str, Sight] = {}
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


def join_sights(first: Sight, second: Sight) -> Sight:
    """All that either sees, the value where one of them sees that; in the order of the genes."""
    return {g: first.get(g, False) or second.get(g, False) for g in sorted({*first, *second})}


def state_of(genes: Mapping[int, int], sight: Sight) -> tuple[int, ...]:
    """What can be seen of an architecture."""
    return tuple(genes[g] if whole else min(genes[g], 1) for g, whole in sight.items())


def all_states(sizes: Sequence[int], sight: Sight) -> Iterator[tuple[int, ...]]:
    """All that can be seen of any architecture; read as genes, a state is an architecture that shows it."""
    return itertools.product(*(range(sizes[g] if whole else min(sizes[g], 2)) for g, whole in sight.items()))


def table_of(sizes: Sequence[int], sight: Sight, values: Mapping[tuple[int, ...], Any], dtype: Any) -> np.ndarray:
    """Values of states as an array over all choices of the genes seen; what no state was seen for is 0."""
    table = np.zeros([sizes[g] if whole else min(sizes[g], 2) for g, whole in sight.items()], dtype)
    for state, value in values.items():
        table[state] = value
    if all(sight.values()):
        return table
    return table[np.ix_(*(np.minimum(np.arange(sizes[g]), sizes[g] if whole else 1) for g, whole in sight.items()))]


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
    valid: np.ndarray = field(repr=False)
    """bool array over the product of the control genes: where the architecture is a network."""

    @cached_property
    def masks(self) -> list[tuple[int, tuple[int, ...], np.ndarray]]:
        """(gene, its deciding genes, table) of genes that are not always read.

        Deciding genes first: whether they count themselves settles what depends on them.
        """
        order = sorted(self.tables, key=lambda gene: (gene not in self.control, gene))
        return [(gene, *self.tables[gene]) for gene in order if self.tables[gene][1].size and not self.tables[gene][1].all()]


@lru_cache(maxsize=None)
def activity(space: Space) -> Activity:
    """Learns which genes are read from recorded lowerings, over all states of the deciding genes.

    Lowers a few probes to find the deciding genes (each gene moved alone from both corners), then every
    combination of those that lowering can tell apart.
    """
    sizes = [len(g.choices) for g in space.genes]
    if max(sizes) > 255 or any(s < 1 for s in sizes):
        raise UsageError(f"Space {space.name}: every gene needs 1 to 255 choices.")
    under: dict[int, Sight] = {g: {} for g in range(len(sizes))}

    def lowered(column: Column) -> Lowering:
        record = Lowering(space, column)
        space.lower(record)
        return record

    low, high = [0] * len(sizes), [s - 1 for s in sizes]
    for corner in (low, high):
        for gene, size in enumerate(sizes):
            for value in {0, size // 2, size - 1}:
                probe = lowered([value if i == gene else corner[i] for i in range(len(sizes))])
                for read, deciders in probe.read_under.items():
                    under[read] = join_sights(under[read], deciders)
    control = reduce(join_sights, under.values())
    if math.prod(sizes[g] for g in control) > MAX_CONTROL_STATES:
        raise UsageError(f"Space {space.name}: more than {MAX_CONTROL_STATES} states decide which genes are active.")
    active: dict[int, dict[tuple[int, ...], int]] = {g: {} for g in under}
    valid: dict[tuple[int, ...], bool] = {}
    for state in all_states(sizes, control):
        genes = dict(enumerate(high)) | dict(zip(control, state, strict=True))
        record = lowered(list(genes.values()))
        valid[state] = record.is_network
        for gene in record.read_under:
            active[gene][state_of(genes, under[gene])] = 1
    if not any(valid.values()):
        raise UsageError(f"Space {space.name}: none of its architectures is a network.")
    tables = {g: (tuple(sight), table_of(sizes, sight, active[g], np.uint8)) for g, sight in under.items()}
    return Activity(tuple(control), tables, table_of(sizes, control, valid, bool))


def canonical(space: Space, population: Population) -> Population:
    """The population with inactive genes set to 0 (a new array)."""
    genes = np.array(population, dtype=np.uint8, order="C")
    for gene, deciders, table in activity(space).masks:
        genes[gene] *= table[tuple(genes[d] for d in deciders)]
    return genes


def valid(space: Space, population: Population) -> np.ndarray:
    """bool[n]: which architectures are networks; False where the space refuses one (a cell without a way through)."""
    known = activity(space)
    return np.broadcast_to(known.valid[tuple(population[g] for g in known.control)], population.shape[1])


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
    """Draws n networks, uniform over gene values, canonicalised; an architecture that is no network is drawn again."""
    found = canonical(space, _draw(space, n, rng))
    while not (good := valid(space, found)).all():
        found[:, ~good] = canonical(space, _draw(space, int((~good).sum()), rng))
    return found


def _draw(space: Space, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack([rng.integers(0, len(g.choices), n, dtype=np.uint8) for g in space.genes])


def problem(
    space: Space,
    objectives: Mapping[str, str],
    limits: Mapping[str, float] | None = None,
    known: Mapping[str, Callable[[Genes], np.ndarray]] | None = None,
) -> Problem:
    """What a strategy is to solve in this space; there architectures are rows, here columns."""
    return Problem(
        [(gene.label, len(gene.choices)) for gene in space.genes],
        objectives,
        limits or {},
        known or {},
        canonical=lambda genes: np.ascontiguousarray(canonical(space, genes.T).T),
        wide=[i for i, gene in enumerate(space.genes) if gene.layer is None],
    )


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
    reads: dict[str, Sight] = {}
    seen: dict[str, dict[tuple[int, ...], OpSpec | None]] = {}
    open_states: dict[str, list[tuple[int, ...]]] = {}
    repeats: dict[str, int] = {}

    def record(column: list[int]) -> None:
        lowering = Lowering(space, column)
        workload = space.lower(lowering)
        for phase in workload.phases:
            repeats.update({node.name: phase.repeat for node in phase.network.nodes})
        found = {node.name: node.spec for phase in workload.phases for node in phase.network.nodes}
        for name, sight in lowering.node_reads.items():
            joined = join_sights(reads.get(name, {}), sight)
            if reads.get(name) != joined:
                reads[name] = joined
                shape = [sizes[g] for g in joined]
                if math.prod(shape) > MAX_SLOT_STATES:
                    raise UsageError(
                        f"Space {space.name}: node {name} depends on {len(shape)} genes with too many combinations."
                    )
                seen[name] = {}
                open_states[name] = list(all_states(sizes, joined))
        genes = dict(enumerate(column))
        for name, sight in reads.items():
            seen[name].setdefault(state_of(genes, sight), found.get(name))

    record([s - 1 for s in sizes])
    record([0] * len(sizes))
    while True:
        column: dict[int, int] = {}
        progress = False
        for name, sight in reads.items():
            states, known = open_states[name], seen[name]
            while states and states[-1] in known:
                states.pop()
            for state in reversed(states):
                if state not in known and all(
                    g not in column or v == (column[g] if whole else min(column[g], 1))
                    for (g, whole), v in zip(sight.items(), state, strict=True)
                ):
                    column = dict(zip(sight, state, strict=True)) | column
                    progress = True
                    break
        if not progress:
            break
        record([column.get(g, sizes[g] - 1) for g in range(len(sizes))])
    return tuple(
        Slot(
            name,
            tuple(sight),
            tuple(sizes[g] for g in sight),
            tuple(table_of(sizes, sight, seen[name], object).ravel().tolist()),
            repeats[name],
        )
        for name, sight in reads.items()
    )
