"""Every node of a space's networks over all combinations of the genes it reads, and so every op a space can need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.spec import OpSpec
from hwbench.space.base import Population, Space
from hwbench.space.lowering import Lowering, Sight, all_states, join_sights, state_of, table_of


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
