"""Which genes count: canonical form, valid architectures, the size of a space, and sampling it.

Canonical form: a gene that lowering does not read (layers beyond the depth, edges of a cell that lead nowhere) is 0.
Sampling is uniform over gene values and then canonicalised, so architectures with fewer active genes are drawn more
often each. A space may `refuse` an architecture (a cell without a way through): it has a form, but is no network.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.space.base import Column, Population, Space
from hwbench.space.lowering import Dependency, Lowering, all_states, join_dependencies, state_of, table_of

MAX_CONTROL_STATES = 65_536


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
    under: dict[int, Dependency] = {g: {} for g in range(len(sizes))}

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
                    under[read] = join_dependencies(under[read], deciders)
    control = reduce(join_dependencies, under.values())
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
    tables = {g: (tuple(dependency), table_of(sizes, dependency, active[g], np.uint8)) for g, dependency in under.items()}
    return Activity(tuple(control), tables, table_of(sizes, control, valid, bool))


def canonical(space: Space, population: Population) -> Population:
    """The population with inactive genes set to 0 (a new array)."""
    genes = np.array(population, dtype=np.uint8, order="C")
    for gene, deciders, table in activity(space).masks:
        genes[gene] *= table[tuple(genes[d] for d in deciders)]
    return genes


def active(space: Space, genes: Sequence[int], population: Population) -> np.ndarray:
    """bool[genes, n]: where these genes count."""
    tables = activity(space).tables
    found = [tables[gene][1][tuple(population[d] for d in tables[gene][0])] for gene in genes]
    return np.stack([np.broadcast_to(np.asarray(each, bool), population.shape[1:]) for each in found])


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
    population = canonical(space, _draw(space, n, rng))
    while not (good := valid(space, population)).all():
        population[:, ~good] = canonical(space, _draw(space, int((~good).sum()), rng))
    return population


def _draw(space: Space, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack([rng.integers(0, len(g.choices), n, dtype=np.uint8) for g in space.genes])
