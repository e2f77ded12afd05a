"""What every space keeps: what hwbench derives from recorded lowerings is what plain lowering says."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import numpy as np

from hwbench.space.activity import canonical, sample, size
from hwbench.space.base import Column, Population, Space
from hwbench.space.lowering import Lowering, lower, networks
from hwbench.space.slots import distinct_specs, slots
from hwbench.space.values import from_values, to_values
from hwbench.testing.base import Contract
from hwbench.testing.op import TORCH_LIMIT, torch_difference

VIEWED = 3
"""Architectures run in torch and in onnxruntime."""


def sizes(space: Space) -> list[int]:
    """Choices of every gene."""
    return [len(g.choices) for g in space.genes]


def uniform(space: Space, n: int, seed: int = 1) -> Population:
    """Raw columns, drawn without the code under test."""
    drawn = np.random.default_rng(seed).integers(0, np.array(sizes(space))[:, None], (len(space.genes), n))
    return np.asarray(drawn.astype(np.uint8))


def read(space: Space, column: Column) -> list[bool]:
    """Which genes a plain lowering looks at."""
    record = Lowering(space, [int(v) for v in column])
    space.lower(record)
    return [gene in record.read_under for gene in range(len(space.genes))]


def plain_canonical(space: Space, column: Column) -> tuple[int, ...]:
    """Genes nobody looks at are 0."""
    return tuple(int(v) if active else 0 for v, active in zip(column, read(space, column), strict=True))


def columns(population: Population) -> list[tuple[int, ...]]:
    """One tuple per architecture."""
    return [tuple(int(v) for v in column) for column in population.T]


class SpaceContract(Contract):
    """Architectures are drawn; the whole space need not be small."""

    kind = "space"

    @cached_property
    def space(self) -> Space:
        """The space."""
        made: Space = self.make()
        return made

    def expect_valid(self, population: Population) -> None:
        """Choices that exist, in canonical form."""
        self.expect(population.dtype == np.uint8, "genes", f"expected uint8, found {population.dtype}")
        inside = (population < np.array(sizes(self.space))[:, None]).all()
        self.expect(inside, "genes", "expected choices that exist")
        same = columns(population) == [plain_canonical(self.space, column) for column in population.T]
        self.expect(same, "lower", "expected that genes which lowering does not read are 0: read genes through `arch` only")

    def test_the_canonical_form_is_what_lowering_reads(self) -> None:
        """And lowers to the same network."""
        raw = uniform(self.space, 100)
        before = raw.copy()
        population = canonical(self.space, raw)
        self.expect((raw == before).all(), "genes", "expected that what was given stays as it is")
        self.expect_valid(population)
        same = columns(population) == [plain_canonical(self.space, column) for column in raw.T]
        self.expect(same, "lower", "expected that recorded lowerings say which genes count; branch with arch.present or choose")
        self.expect((canonical(self.space, population) == population).all(), "lower", "expected a canonical form to be its own")
        for given, kept in zip(raw.T[:20], population.T, strict=False):
            same = lower(self.space, given) == lower(self.space, kept)
            self.expect(same, "lower", "expected an architecture and its canonical form to be one network")

    def test_a_gene_counts_where_it_changes_the_network(self) -> None:
        """One gene changed: the canonical form is another exactly where the network is."""
        rng, choices = np.random.default_rng(23), sizes(self.space)
        for column in uniform(self.space, 12, seed=3).T:
            network, form = lower(self.space, column), plain_canonical(self.space, column)
            for gene in (g for g, n in enumerate(choices) if n > 1):
                changed = column.copy()
                changed[gene] = (column[gene] + rng.integers(1, choices[gene])) % choices[gene]
                another = columns(canonical(self.space, changed[:, None]))[0] != form
                told = f"{self.space.genes[gene].label} {column[gene]} -> {changed[gene]} of {column.tolist()}"
                same = lower(self.space, changed) == network
                self.expect(same != another, "lower", f"expected {'another' if another else 'the same'} network from {told}")

    def test_sampling_follows_the_seed_and_is_uniform_over_gene_values(self) -> None:
        """Of a gene that always counts."""
        population = sample(self.space, 2000, np.random.default_rng(7))
        wanted = (len(self.space.genes), 2000)
        self.expect(population.shape == wanted, "genes", f"expected {wanted}, found {population.shape}")
        same = (population == sample(self.space, 2000, np.random.default_rng(7))).all()
        self.expect(same, "lower", "expected the same draw from the same seed")
        other = (population != sample(self.space, 2000, np.random.default_rng(8))).any()
        self.expect(other or size(self.space) == 1, "lower", "expected another draw from another seed")
        self.expect_valid(population[:, :50])
        looked_at = [read(self.space, column) for column in uniform(self.space, 50).T]
        always = [i for i in range(len(self.space.genes)) if all(seen[i] for seen in looked_at)]
        for gene in always[:1]:
            shares = np.bincount(population[gene], minlength=sizes(self.space)[gene]) / 2000
            even = np.abs(shares - 1 / sizes(self.space)[gene]).max() <= 0.05
            self.expect(even, "genes", f"expected choices of {self.space.genes[gene].label} equally often, found {shares}")

    def test_an_architecture_survives_being_written_as_values(self) -> None:
        """Through JSON."""
        for column in sample(self.space, 50, np.random.default_rng(5)).T:
            values = json.loads(json.dumps(to_values(self.space, column)))
            same = tuple(from_values(self.space, values)) == tuple(column)
            self.expect(same, "genes", f"expected {values} to be read as what was written: give plain, different choices")

    def test_values_are_the_choices_lowering_reads(self) -> None:
        """None where a gene does not count."""
        for column in sample(self.space, 20, np.random.default_rng(6)).T:
            expected: dict[str, Any] = {}
            for gene, choice, active in zip(self.space.genes, column, read(self.space, column), strict=True):
                value = gene.choices[choice] if active else None
                if gene.layer is not None:
                    expected.setdefault(gene.name, []).append(value)
                elif active:
                    expected[gene.name] = value
            found = to_values(self.space, column)
            for name, given in found.items():
                gap = [None] * (len(expected[name]) - len(given)) if isinstance(given, list) else []
                same = (given + gap if gap else given) == expected[name]
                self.expect(same, "genes", f"expected {name} = {expected[name]}, found {given}")
            self.expect(found.keys() == expected.keys(), "genes", f"expected {sorted(expected)}, found {sorted(found)}")

    def test_a_slot_answers_what_lowering_answers(self) -> None:
        """Every node's op follows from the genes it was recorded to read."""
        table = slots(self.space)
        self.expect(len({slot.node for slot in table}) == len(table), "lower", "expected every node to have a name of its own")
        for column in sample(self.space, 200, np.random.default_rng(13)).T:
            workload = lower(self.space, column)
            plain = {node.name: (node.spec, phase.repeat) for phase in workload.phases for node in phase.network.nodes}
            found = {}
            for slot in table:
                spec = slot.specs[np.ravel_multi_index([int(column[g]) for g in slot.genes], slot.shape) if slot.genes else 0]
                if spec is not None:
                    found[slot.node] = (spec, slot.repeat)
            wrong = sorted(name for name in {*found, *plain} if found.get(name) != plain.get(name))
            self.expect(not wrong, "lower", f"expected the recorded ops to be those of a plain lowering; nodes {wrong} differ")

    def test_every_op_a_random_architecture_needs_is_listed(self) -> None:
        """So that a table can be complete."""
        listed = distinct_specs(self.space)
        keys = [s.key for s in listed]
        self.expect(keys == sorted(set(keys)), "lower", "expected distinct ops in order")
        drawn = networks(self.space, sample(self.space, 1000, np.random.default_rng(17)))
        needed = {spec.key for network in drawn for spec in network.specs}
        self.expect(needed <= set(keys), "lower", f"expected all ops to be listed; not there: {sorted(needed - set(keys))[:3]}")

    def test_the_torch_view_computes_what_the_model_computes(self) -> None:
        """One definition of an architecture, two views of it."""
        for column in sample(self.space, VIEWED, np.random.default_rng(19)).T:
            for phase in lower(self.space, column).phases:
                found = torch_difference(phase.network, 1)
                said = f"expected {list(column)} in torch as in ONNX within {TORCH_LIMIT}, found a difference of {found:.1e}"
                self.expect(found <= TORCH_LIMIT, "lower", said)
