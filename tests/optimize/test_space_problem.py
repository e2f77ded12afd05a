"""Every space as a problem to search: its genes, and what mutation, crossover and neighbours make of them."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.optimize.space_problem import problem
from hwbench.optimize.variation import crossover, mutate, neighbours
from hwbench.space.activity import canonical, sample
from hwbench.testing.space import columns, plain_canonical, sizes, uniform
from tests.space.test_contract import Nested

SPACES = {**{name: registry.get("space", name) for name in registry.names("space")}, "nested": Nested()}
every_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


def assert_valid(space, population):
    """Every column is the canonical form of an architecture of the space."""
    assert population.dtype == np.uint8
    assert (population < np.array(sizes(space))[:, None]).all()
    assert (population == canonical(space, population)).all()


def goal(space):
    """The space as a strategy meets it."""
    return problem(space, {"accuracy": "max"})


@every_space
def test_a_problem_has_the_genes_of_its_space(space):
    found = problem(space, {"accuracy": "max"}, {"latency_ms": 3.0}, {"latency_ms": lambda genes: genes.sum(axis=1)})
    assert found.genes == tuple((gene.label, len(gene.choices)) for gene in space.genes)
    assert [found.genes[i][0] for i in found.wide] == [gene.name for gene in space.genes if gene.layer is None]
    assert (found.objectives, found.limits, set(found.known)) == ({"accuracy": "max"}, {"latency_ms": 3.0}, {"latency_ms"})
    rows = np.ascontiguousarray(uniform(space, 100).T)
    before = rows.copy()
    canonical_rows = found.canonical(rows)
    assert (rows == before).all()
    assert (canonical_rows == canonical(space, rows.T).T).all()
    assert canonical_rows.flags.c_contiguous
    assert (found.check(canonical_rows) == canonical_rows).all()
    assert found.canonical(rows[:0]).shape == (0, len(space.genes))


@every_space
def test_mutants_differ_in_the_genes_redrawn_and_are_canonical(space):
    parents = sample(space, 200, np.random.default_rng(1)).T
    children = mutate(goal(space), parents, 0.2, np.random.default_rng(2))
    assert_valid(space, children.T)
    assert (children != parents).any(axis=1).mean() > 0.5
    single = mutate(goal(space), parents, 0.0, np.random.default_rng(2))
    newly = (single != parents) & (single != 0)
    assert newly.sum(axis=1).max() == 1, "with rate 0 exactly one gene is redrawn; others can only become inactive"


@every_space
def test_a_redrawn_gene_is_uniform_over_its_choices(space):
    top = plain_canonical(space, np.array(sizes(space)) - 1)

    def decides_nothing(gene: int) -> bool:
        moved = [plain_canonical(space, (*top[:gene], value, *top[gene + 1 :])) for value in range(sizes(space)[gene])]
        others = {(*column[:gene], *column[gene + 1 :]) for column in moved}
        return len(set(moved)) == len(moved) > 1 == len(others)

    gene = next(i for i in reversed(range(len(top))) if decides_nothing(i))
    parents = np.repeat(np.array([top], np.uint8), 40_000, axis=0)
    children = mutate(goal(space), parents, 0.0, np.random.default_rng(4))
    alone = (children != parents).sum(axis=1) == 1
    counts = np.bincount(children[:, gene][alone], minlength=sizes(space)[gene])[:-1]
    assert counts == pytest.approx(40_000 / len(space.genes) / sizes(space)[gene], rel=0.2)


@every_space
def test_a_crossover_takes_every_gene_from_a_parent(space):
    first, second = (sample(space, 200, np.random.default_rng(seed)).T for seed in (1, 2))
    children = crossover(goal(space), first, second, np.random.default_rng(3))
    assert_valid(space, children.T)
    assert ((children == first) | (children == second) | (children == 0)).all()
    differs = (first != second).any(axis=1)
    assert (children != first)[differs].any()
    assert (children != second)[differs].any()
    assert (crossover(goal(space), first, first, np.random.default_rng(3)) == first).all()


@every_space
def test_neighbours_are_all_architectures_one_gene_away(space):
    for start in columns(sample(space, 5, np.random.default_rng(9))):
        expected = set()
        for gene, count in enumerate(sizes(space)):
            expected |= {plain_canonical(space, (*start[:gene], value, *start[gene + 1 :])) for value in range(count)}
        found = columns(neighbours(goal(space), np.array([start], np.uint8)).T)
        assert len(found) == len(set(found))
        assert set(found) == expected - {start}
