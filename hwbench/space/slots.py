"""Every node of a space's networks over all combinations of the genes it reads, and so every op a space can need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.spec import OpSpec
from hwbench.space.base import Population, Space
from hwbench.space.lowering import Dependency, Lowering, all_states, join_dependencies, state_of, table_of


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
    recorder = _Recorder(space)
    recorder.record([size - 1 for size in recorder.sizes])
    recorder.record([0] * len(recorder.sizes))
    while (column := recorder.next_column()) is not None:
        recorder.record(column)
    return recorder.slots()


class _Recorder:
    """What lowered architectures showed of a space's nodes, and what is still open."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.sizes = [len(gene.choices) for gene in space.genes]
        self._reads: dict[str, Dependency] = {}
        """Node -> the genes it reads, as far as that was seen."""
        self._known: dict[str, dict[tuple[int, ...], OpSpec | None]] = {}
        """Node -> state of these genes -> the op there; None where the node does not exist."""
        self._open: dict[str, list[tuple[int, ...]]] = {}
        """Node -> states that may not be known yet."""
        self._repeats: dict[str, int] = {}

    def record(self, column: Sequence[int]) -> None:
        """Lowers one architecture and notes every node."""
        lowering = Lowering(self.space, column)
        phases = self.space.lower(lowering).phases
        for phase in phases:
            self._repeats.update({node.name: phase.repeat for node in phase.network.nodes})
        specs = {node.name: node.spec for phase in phases for node in phase.network.nodes}
        for name, dependency in lowering.node_reads.items():
            self._widen(name, join_dependencies(self._reads.get(name, {}), dependency))
        genes = dict(enumerate(column))
        for name, dependency in self._reads.items():
            self._known[name].setdefault(state_of(genes, dependency), specs.get(name))

    def _widen(self, name: str, dependency: Dependency) -> None:
        """A node that reads more than was known starts anew: its states are other ones now."""
        if self._reads.get(name) == dependency:
            return
        shape = [self.sizes[gene] for gene in dependency]
        if math.prod(shape) > MAX_SLOT_STATES:
            raise UsageError(f"Space {self.space.name}: node {name} depends on {len(shape)} genes with too many combinations.")
        self._reads[name] = dependency
        self._known[name] = {}
        self._open[name] = list(all_states(self.sizes, dependency))

    def next_column(self) -> list[int] | None:
        """An architecture that settles an open state of as many nodes as agree with each other; None where all are known."""
        column: dict[int, int] = {}
        for name, dependency in self._reads.items():
            state = self._open_state(name, column)
            if state is not None:
                column = dict(zip(dependency, state, strict=True)) | column
        if not column:
            return None
        return [column.get(gene, size - 1) for gene, size in enumerate(self.sizes)]

    def _open_state(self, name: str, column: Mapping[int, int]) -> tuple[int, ...] | None:
        """A state of a node that is not known and agrees with the genes chosen so far."""
        states, known, dependency = self._open[name], self._known[name], self._reads[name]
        while states and states[-1] in known:
            states.pop()
        for state in reversed(states):
            if state not in known and all(
                gene not in column or value == (column[gene] if whole else min(column[gene], 1))
                for (gene, whole), value in zip(dependency.items(), state, strict=True)
            ):
                return state
        return None

    def slots(self) -> tuple[Slot, ...]:
        """Every node, once all its states are known."""
        return tuple(
            Slot(
                name,
                tuple(dependency),
                tuple(self.sizes[gene] for gene in dependency),
                tuple(table_of(self.sizes, dependency, self._known[name], object).ravel().tolist()),
                self._repeats[name],
            )
            for name, dependency in self._reads.items()
        )


def op_counts(space: Space, population: Population, specs: Sequence[OpSpec]) -> np.ndarray:
    """How often each op runs in each architecture: float[architectures, ops]; `specs` holds every op of the space."""
    place = {spec: i for i, spec in enumerate(specs)}
    n = population.shape[1]
    counts = np.zeros((n, len(specs)))
    for slot in slots(space):
        column = np.array([-1 if spec is None else place[spec] for spec in slot.specs])
        state = np.ravel_multi_index(tuple(population[list(slot.genes)]), slot.shape) if slot.genes else np.zeros(n, int)
        exists = np.flatnonzero(column[state] >= 0)
        np.add.at(counts, (exists, column[state][exists]), slot.repeat)
    return counts
