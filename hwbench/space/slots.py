"""Every node of a space's networks over all combinations of the genes it reads, and so every op a space can need."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.network.spec import OpSpec
from hwbench.space.base import Population, Space
from hwbench.space.lowering import Context, state_of
from hwbench.space.record import Lowered, agrees, missed, record


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

    Where a node exists, and what it reads there, is known from the space's record. One lowering then settles one combination
    of every node at once; the next architecture is put together greedily from combinations still open. Checked against plain
    lowering by the contract tests.
    """
    recorder = _Recorder(space)
    for each in record(space).lowered:
        recorder.see(each)
    while column := recorder.next_column():
        recorder.see(Lowered.of(space, [column.get(gene, size - 1) for gene, size in enumerate(recorder.sizes)]))
    return recorder.slots()


@dataclass
class _Variant:
    """A node in one state of the choices that let it exist."""

    context: Context
    state: tuple[int, ...]
    genes: tuple[int, ...]
    """What else its op depends on."""
    open: list[tuple[int, ...]]
    """Choices of these that may not be known yet."""
    ops: dict[tuple[int, ...], OpSpec]

    def agreeing(self, column: Mapping[int, int]) -> tuple[int, ...] | None:
        """Open choices that agree with the genes chosen so far."""
        if not agrees(column, self.context, self.state):
            return None
        fixed = [(i, column[gene]) for i, gene in enumerate(self.genes) if gene in column]
        for values in reversed(self.open):
            if values not in self.ops and all(values[i] == value for i, value in fixed):
                return values
        return None


class _Recorder:
    """What lowered architectures showed of a space's nodes, and what is still open."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.sizes = [len(gene.choices) for gene in space.genes]
        self._nodes: dict[str, dict[tuple[Context, tuple[int, ...]], _Variant]] = {}
        self._open: dict[str, list[_Variant]] = {}
        self._repeats: dict[str, int] = {}

    def see(self, lowered: Lowered) -> None:
        """Notes every node of an architecture."""
        for phase in lowered.workload.phases:
            for node in phase.network.nodes:
                self._repeats[node.name] = phase.repeat
                self._note(node.name, node.spec, lowered)
        reads = lowered.seen.node_reads
        for name, variants in self._nodes.items():
            for context in {context for context, _ in variants}:
                there = (context, state_of(lowered.column, context)) in variants
                if there and (name not in reads or reads[name][0] != context):
                    raise missed(self.space, f"node {name} exists in some architectures and not in others", dict(context))

    def _note(self, name: str, spec: OpSpec, lowered: Lowered) -> None:
        if name not in lowered.seen.node_reads:
            raise UsageError(
                f"Space {self.space.name}: node {name} was not added by arch.add, so nobody knows what it depends on."
            )
        context, read = lowered.seen.node_reads[name]
        state = state_of(lowered.column, context)
        genes = tuple(sorted(read - {gene for gene, whole in context if whole}))
        variants = self._nodes.setdefault(name, {})
        if (context, state) not in variants:
            variants[context, state] = self._variant(name, context, state, genes)
            self._open.setdefault(name, []).append(variants[context, state])
        variant = variants[context, state]
        known = variant.ops.setdefault(tuple(lowered.column[gene] for gene in variant.genes), spec)
        if known != spec or variant.genes != genes:
            raise missed(self.space, f"node {name} is {known.key} and {spec.key}", sorted({*dict(context), *genes}))

    def _variant(self, name: str, context: Context, state: tuple[int, ...], genes: tuple[int, ...]) -> _Variant:
        """With all choices of its genes; of an optional part, those that the state allows."""
        union = {*dict(context), *genes}.union(*({*dict(c), *v.genes} for (c, _), v in self._nodes[name].items()))
        if math.prod(self.sizes[gene] for gene in union) > MAX_SLOT_STATES:
            raise UsageError(f"Space {self.space.name}: node {name} depends on {len(union)} genes with too many combinations.")
        shown = {gene: value for (gene, _), value in zip(context, state, strict=True)}
        allowed = (
            [choice for choice in range(self.sizes[gene]) if shown.get(gene, min(choice, 1)) == min(choice, 1)]
            for gene in genes
        )
        return _Variant(context, state, genes, list(itertools.product(*allowed)), {})

    def next_column(self) -> dict[int, int]:
        """Genes that settle an open combination of as many nodes as agree with each other; nothing where all are known."""
        column: dict[int, int] = {}
        for variants in self._open.values():
            while variants and len(variants[-1].ops) == len(variants[-1].open):
                variants.pop()
            for variant in reversed(variants):
                values = variant.agreeing(column)
                if values is not None:
                    shown = {gene: value for (gene, _), value in zip(variant.context, variant.state, strict=True)}
                    column = shown | dict(zip(variant.genes, values, strict=True)) | column
                    break
        return column

    def slots(self) -> tuple[Slot, ...]:
        """Every node, once all its combinations are known."""
        return tuple(self._slot(name, list(variants.values())) for name, variants in self._nodes.items())

    def _slot(self, name: str, variants: Sequence[_Variant]) -> Slot:
        genes = tuple(sorted({gene for v in variants for gene in (*dict(v.context), *v.genes)}))
        shape = tuple(self.sizes[gene] for gene in genes)
        table = np.full(shape, None, object)
        for variant in variants:
            where: dict[int, int | slice] = dict.fromkeys(genes, slice(None))
            for (gene, whole), value in zip(variant.context, variant.state, strict=True):
                where[gene] = value if whole or value == 0 else slice(1, None)
            for values, spec in variant.ops.items():
                table[tuple((where | dict(zip(variant.genes, values, strict=True))).values())] = spec
        return Slot(name, genes, shape, tuple(table.ravel().tolist()), self._repeats[name])


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
