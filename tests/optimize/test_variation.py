"""New architectures: within their genes, canonical, as far from their parents as asked, and none twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.genes import keys
from hwbench.optimize.problem import MOST_CHOICES, Problem
from hwbench.optimize.variation import Seen, crossover, everything, mutate, neighbours, sample, sample_new, sample_within

OBJECTIVES = {"accuracy": "max"}


def depth_rules(genes):
    """Gene 0 says how many of the others count; those that do not are 0."""
    genes = genes.copy()
    genes[:, 1:][np.arange(genes.shape[1] - 1) > genes[:, :1]] = 0
    return genes


@pytest.fixture
def plain():
    return Problem([("a", 4), ("b", 1), ("c", 3), ("d", 2)], OBJECTIVES)


@pytest.fixture
def deep():
    return Problem([("depth", 3), ("x", 3), ("y", 3), ("z", 3)], OBJECTIVES, canonical=depth_rules)


def test_samples_are_uniform_over_choices(plain):
    drawn = sample(plain, 12_000, np.random.default_rng(0))
    assert drawn.dtype == np.uint8
    for column, (_, size) in zip(drawn.T, plain.genes, strict=True):
        assert np.bincount(column, minlength=size) / 12_000 == pytest.approx(np.full(size, 1 / size), abs=0.02)


def test_the_largest_gene_is_drawn_to_its_end():
    drawn = sample(Problem([("a", MOST_CHOICES)], OBJECTIVES), 5000, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (0, MOST_CHOICES - 1)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_everything_is_every_combination_once(sizes):
    problem = Problem([(f"g{i}", size) for i, size in enumerate(sizes)], OBJECTIVES)
    found = everything(problem)
    assert found.dtype == np.uint8
    assert [tuple(row) for row in found] == sorted(np.ndindex(*sizes))


def test_a_hundred_genes_without_a_choice_are_one_architecture():
    assert everything(Problem([(f"g{i}", 1) for i in range(100)], OBJECTIVES)).tolist() == [[0] * 100]


def test_everything_of_a_space_with_inactive_genes_has_no_twins(deep):
    found = everything(deep)
    assert len(found) == 3 + 9 + 27
    assert (found == depth_rules(found)).all()
    assert len(set(keys(found))) == len(found)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_mutants_differ_from_their_parents_in_about_as_many_genes_as_asked(rate):
    problem = Problem([(f"g{i}", 4) for i in range(20)], OBJECTIVES)
    rng = np.random.default_rng(1)
    parents = sample(problem, 2000, rng)
    before = parents.copy()
    changed = (mutate(problem, parents, rate, rng) != parents).sum(axis=1)
    # One gene is always redrawn; a redraw changes it three times in four.
    assert changed.mean() == pytest.approx(0.75 * (1 + 19 * rate), rel=0.06)
    assert (parents == before).all()


def test_children_have_every_gene_from_a_parent():
    problem = Problem([(f"g{i}", 9) for i in range(8)], OBJECTIVES)
    rng = np.random.default_rng(2)
    first, second = sample(problem, 500, rng), sample(problem, 500, rng)
    children = crossover(problem, first, second, rng)
    assert ((children == first) | (children == second)).all()
    share = (children == first)[first != second].mean()
    assert share == pytest.approx(0.5, abs=0.05)


def test_neighbours_are_all_that_differ_in_one_gene(plain):
    one = np.array([[1, 0, 2, 0]], np.uint8)
    whole = everything(plain)
    expected = whole[(whole != one).sum(axis=1) == 1]
    assert sorted(map(tuple, neighbours(plain, one))) == sorted(map(tuple, expected))


def test_neighbours_of_several_leave_them_all_out(plain):
    several = np.array([[1, 0, 2, 0], [1, 0, 2, 1], [0, 0, 0, 0]], np.uint8)
    whole = everything(plain)
    near = (whole[:, None] != several[None]).sum(axis=2).min(axis=1) == 1
    assert sorted(map(tuple, neighbours(plain, several))) == sorted(map(tuple, whole[near]))


def test_neighbours_in_a_space_with_inactive_genes_are_other_networks(deep):
    one = depth_rules(np.array([[0, 1, 2, 2]], np.uint8))
    found = neighbours(deep, one)
    assert (found == depth_rules(found)).all()
    assert keys(one)[0] not in keys(found)
    # Two other values of the one layer there is; one more layer, or two more, of the first kind.
    assert sorted(map(tuple, found)) == [(0, 0, 0, 0), (0, 2, 0, 0), (1, 1, 0, 0), (2, 1, 0, 0)]


def test_seen_lets_each_pass_once(plain):
    seen, rng = Seen(), np.random.default_rng(3)
    drawn = sample(plain, 100, rng)
    first = seen.new(drawn)
    assert len(first) == len(seen) == len(set(keys(drawn)))
    assert seen.new(drawn).shape == (0, 4)
    assert not seen.unknown(drawn).any()
    other = everything(plain)
    assert seen.unknown(other).sum() == len(other) - len(first)
    assert len(seen) == len(first), "looking remembers nothing"


@pytest.mark.parametrize("n", [1, 7, 1000])
@pytest.mark.parametrize("kind", ["plain", "deep"])
def test_new_samples_exhaust_a_small_space(request, kind, n):
    problem = request.getfixturevalue(kind)
    seen, rng = Seen(), np.random.default_rng(4)
    found = []
    while len(drawn := sample_new(problem, n, rng, seen)):
        assert len(drawn) <= n
        found.append(drawn)
    assert sorted(keys(np.concatenate(found))) == sorted(keys(everything(problem)))


def test_new_samples_of_a_large_space_come_in_full():
    problem = Problem([(f"g{i}", 3) for i in range(40)], OBJECTIVES)
    assert len(sample_new(problem, 5000, np.random.default_rng(5), Seen())) == 5000


# Within known limits

NOBODY = np.empty((0, 40), np.uint8)


def limited(most: float) -> Problem:
    """Forty genes of four choices; the price is their sum, so that random ones cost 60 and next to none less than 40."""
    price = {"price": lambda genes: genes.sum(axis=1, dtype=float)}
    return Problem([(f"g{i}", 4) for i in range(40)], OBJECTIVES, {"price": most}, price)


@pytest.mark.parametrize("most", [60, 30, 5, 1])
def test_architectures_within_a_limit_are_found_however_tight_it_is(most):
    problem = limited(most)
    found = sample_within(problem, 20, np.random.default_rng(0), Seen(), NOBODY)
    assert (len(found), len(set(keys(found)))) == (20, 20)
    assert (found.sum(axis=1) <= most).all()
    again = sample_within(problem, 20, np.random.default_rng(0), Seen(), NOBODY)
    assert np.array_equal(found, again)


def test_they_are_not_all_alike():
    """Every gene takes other choices than 0 in some of them, and no two of them differ in a place or two alone."""
    found = sample_within(limited(30), 50, np.random.default_rng(1), Seen(), NOBODY)
    assert ((found > 0).mean(axis=0) > 0.05).all()
    assert np.median([(one != other).sum() for one in found for other in found]) > 8


def test_as_many_as_there_are_and_what_was_seen_is_not_drawn_again():
    """With a limit of 1: nothing, or one gene at 1."""
    problem, seen = limited(1), Seen()
    first = seen.new(sample_within(problem, 30, np.random.default_rng(0), seen, NOBODY))
    rest = sample_within(problem, 30, np.random.default_rng(0), seen, first)
    assert (len(first), len(rest)) == (30, 11)
    assert not len(sample_within(limited(-1), 5, np.random.default_rng(0), Seen(), NOBODY))


def test_a_small_space_is_listed(deep):
    problem = Problem(deep.genes, OBJECTIVES, {"depth": 0}, {"depth": lambda genes: genes[:, 0] * 1.0}, depth_rules)
    found = sample_within(problem, 50, np.random.default_rng(0), Seen(), np.empty((0, 4), np.uint8))
    assert sorted(map(tuple, found)) == [(0, 0, 0, 0), (0, 1, 0, 0), (0, 2, 0, 0)]
