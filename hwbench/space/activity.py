"""Which genes count: canonical form, valid architectures, the size of a space, and sampling it.

Canonical form: a gene that lowering does not read (layers beyond the depth, edges of a cell that lead nowhere) is 0.
Sampling is uniform over gene values and then canonicalised, so architectures with fewer active genes are drawn more
often each. A space may `refuse` an architecture (a cell without a way through): it has a form, but is no network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.factors import Factor, spread
from hwbench.space import elimination
from hwbench.space.base import Population, Space
from hwbench.space.record import record

JOINED_STATES = 4096
"""Choices that decide at several places are looked up together where they have no more states."""


@dataclass(frozen=True)
class Activity:
    """Which genes count, as tables over the few genes that decide it."""

    tables: Mapping[int, tuple[Factor, ...]] = field(repr=False)
    """gene -> (deciding genes, uint8 array over their product: 1 where it is read), one per place; it counts if one says so."""
    refusals: tuple[Factor, ...] = field(repr=False)
    """(deciding genes, bool array over their product: where the architecture is no network)."""

    @cached_property
    def control(self) -> tuple[int, ...]:
        """Genes that decide whether others are read, or whether an architecture is a network."""
        factors = [*(factor for factors in self.tables.values() for factor in factors), *self.refusals]
        return tuple(sorted({gene for deciders, _ in factors for gene in deciders}))

    @cached_property
    def masks(self) -> list[tuple[int, tuple[Factor, ...]]]:
        """(gene, its tables) of genes that are not always read, deciding genes first."""
        order = sorted(self.tables, key=lambda gene: (gene not in self.control, gene))
        return [(gene, self.tables[gene]) for gene in order if not any(table.all() for _, table in self.tables[gene])]


@lru_cache(maxsize=None)
def activity(space: Space) -> Activity:
    """Which genes are read under which choices, from the space's record."""
    known = record(space)
    if all(each.seen.refused_under for each in known.lowered):
        raise UsageError(f"Space {space.name}: none of its architectures is a network.")
    sizes = [len(g.choices) for g in space.genes]
    tables = {gene: _joined(factors, sizes) for gene, factors in known.reads.items()}
    return Activity(tables, tuple(known.refusals))


def _joined(factors: Sequence[Factor], sizes: Sequence[int]) -> tuple[Factor, ...]:
    """Tables of several places as one, where that stays small."""
    always = [factor for factor in factors if factor[1].all()]
    if always:
        return (((), np.ones((), np.uint8)),)
    union = tuple(sorted({gene for deciders, _ in factors for gene in deciders}))
    if math.prod(sizes[gene] for gene in union) > JOINED_STATES:
        return tuple((deciders, table.astype(np.uint8)) for deciders, table in factors)
    joint = np.zeros([sizes[gene] for gene in union], bool)
    for deciders, table in factors:
        joint |= spread(table, deciders, union, sizes)
    return ((union, joint.astype(np.uint8)),)


def _look_up(factors: Sequence[Factor], population: Population) -> np.ndarray:
    """Where one of the tables says so, for every architecture (or one value for all)."""
    (deciders, table), *others = factors
    found = np.asarray(table[tuple(population[d] for d in deciders)])
    for deciders, table in others:
        found = found | table[tuple(population[d] for d in deciders)]
    return found


def canonical(space: Space, population: Population) -> Population:
    """The population with inactive genes set to 0 (a new array)."""
    genes = np.array(population, dtype=np.uint8, order="C")
    for gene, factors in activity(space).masks:
        genes[gene] *= _look_up(factors, genes)
    return genes


def active(space: Space, genes: Sequence[int], population: Population) -> np.ndarray:
    """bool[genes, n]: where these genes count."""
    tables = activity(space).tables
    found = [_look_up(tables[gene], population) for gene in genes]
    return np.stack([np.broadcast_to(np.asarray(each, bool), population.shape[1:]) for each in found])


def valid(space: Space, population: Population) -> np.ndarray:
    """bool[n]: which architectures are networks; False where the space refuses one (a cell without a way through)."""
    refusals = activity(space).refusals
    refused = _look_up(refusals, population) if refusals else np.zeros((), bool)
    return np.broadcast_to(~refused, population.shape[1])


@lru_cache(maxsize=None)
def size(space: Space) -> int:
    """Exact number of different (canonical) architectures.

    A gene that others depend on has its choices where it counts and 0 elsewhere; any other multiplies by its choices where it
    counts. What several places decide is joined step by step, each step a variable of its own.
    """
    known = activity(space)
    sizes = [len(g.choices) for g in space.genes]
    factors: list[Factor] = []
    for gene, places in known.tables.items():
        (deciders, read), *others = places
        for other, table in others:
            union = tuple(sorted({*deciders, *other}))
            either = spread(read, deciders, union, sizes) | spread(table, other, union, sizes)
            factors.append(((*union, len(sizes)), np.stack([either == 0, either == 1], axis=-1).astype(object)))
            deciders, read = (len(sizes),), np.arange(2, dtype=np.uint8)
            sizes.append(2)
        if gene not in known.control:
            factors.append((deciders, np.where(read == 1, sizes[gene], 1).astype(object)))
            continue
        union = tuple(sorted({*deciders, gene}))
        first = spread(np.arange(sizes[gene]) == 0, (gene,), union, sizes)
        factors.append((union, (first | (spread(read, deciders, union, sizes) == 1)).astype(object)))
    return int(elimination.total(factors, sizes, space.name))


def sample(space: Space, n: int, rng: np.random.Generator) -> Population:
    """Draws n networks, uniform over gene values, canonicalised; an architecture that is no network is drawn again."""
    population = canonical(space, _draw(space, n, rng))
    while not (good := valid(space, population)).all():
        population[:, ~good] = canonical(space, _draw(space, int((~good).sum()), rng))
    return population


def _draw(space: Space, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.stack([rng.integers(0, len(g.choices), n, dtype=np.uint8) for g in space.genes])
