"""Fronts, ranks, room and volume against brute force over small grids, where ties and copies abound."""

from __future__ import annotations

from itertools import pairwise

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hwbench.core import pareto

SIDE = 5
"""Grids have points 0 .. SIDE - 1 in every loss."""


def grids(losses, most=14):
    shape = st.tuples(st.integers(1, most), st.just(losses))
    return arrays(float, shape, elements=st.integers(0, SIDE - 1).map(float))


some_losses = st.integers(1, 4).flatmap(grids)


def beats(a, b):
    return bool((a <= b).all() and (a < b).any())


def brute_ranks(losses):
    """Peels front after front, comparing every pair."""
    found = np.full(len(losses), -1)
    left = list(range(len(losses)))
    level = 0
    while left:
        best = [i for i in left if not any(beats(losses[j], losses[i]) for j in left)]
        found[best] = level
        left = [i for i in left if i not in best]
        level += 1
    return found


def counted(losses, reference):
    """Volume of what is dominated, in unit cells of the grid: a cell is dominated if its lower corner is."""
    corners = np.indices([int(r) for r in reference]).reshape(len(reference), -1).T
    return sum(any((point <= corner).all() for point in losses) for corner in corners)


@given(some_losses)
def test_ranks_are_those_of_comparing_every_pair(losses):
    assert (pareto.ranks(losses) == brute_ranks(losses)).all()


@given(some_losses, st.integers(1, 3))
def test_ranks_beyond_the_asked_fronts_are_one(losses, most):
    assert (pareto.ranks(losses, most) == np.minimum(brute_ranks(losses), most)).all()


@given(some_losses)
def test_the_front_has_each_undominated_point_once_and_is_sorted(losses):
    front = pareto.front(losses)
    assert {tuple(p) for p in losses[front]} == {tuple(p) for p in losses[brute_ranks(losses) == 0]}
    assert len({tuple(p) for p in losses[front]}) == len(front)
    assert [tuple(p) for p in losses[front]] == sorted(tuple(p) for p in losses[front])
    for i in front:
        assert i == np.flatnonzero((losses == losses[i]).all(axis=1))[0], "of equal rows, the first"


@given(some_losses, st.data())
def test_rows_with_an_infinite_loss_are_last_and_in_no_front(losses, data):
    bad = np.array(data.draw(st.lists(st.booleans(), min_size=len(losses), max_size=len(losses))))
    losses = losses.copy()
    losses[bad, -1] = np.inf
    ranks = pareto.ranks(losses)
    assert (ranks[bad] == len(losses)).all()
    assert (ranks[~bad] == brute_ranks(losses[~bad])).all()
    assert not set(pareto.front(losses)) & set(np.flatnonzero(bad))


@given(st.integers(3, 5).flatmap(grids), st.integers(1, 5))
def test_the_size_of_a_block_changes_nothing(losses, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pareto, "BLOCK", block)
        assert (pareto.ranks(losses) == brute_ranks(losses)).all()


@pytest.mark.parametrize("losses", [2, 3, 4])
@pytest.mark.parametrize("kind", ["few ties", "many ties", "nobody is beaten"])
def test_many_rows_are_compared_as_if_in_pairs(losses, kind):
    rng = np.random.default_rng(losses)
    rows = rng.integers(0, 8 if kind == "many ties" else 500, (2 * pareto.BLOCK + 100, losses)).astype(float)
    if kind == "nobody is beaten":
        rows[:, -1] = -rows[:, :-1].sum(axis=1)
    no_better = np.all([column[:, None] >= column for column in rows.T], axis=0)
    beaten = (no_better & np.any([column[:, None] > column for column in rows.T], axis=0)).any(axis=1)
    assert ((pareto.ranks(rows, 1) == 0) == ~beaten).all()
    assert set(pareto.front(rows)) <= set(np.flatnonzero(~beaten))
    assert (kind == "nobody is beaten") == (not beaten.any())


@given(grids(2), st.permutations(range(14)))
def test_the_order_of_rows_changes_no_rank(losses, order):
    order = [i for i in order if i < len(losses)]
    assert (pareto.ranks(losses[order]) == pareto.ranks(losses)[order]).all()


@given(grids(2, most=10))
def test_crowding_is_the_distance_of_both_neighbours_in_every_loss(losses):
    losses = np.unique(losses, axis=0)
    found = pareto.crowding(losses)
    if len(losses) <= 2:
        assert (found == np.inf).all()
        return
    expected = np.zeros(len(losses))
    for column in losses.T:
        order = sorted(range(len(column)), key=lambda i: (column[i], i))
        span = column.max() - column.min()
        for place, i in enumerate(order):
            if place in (0, len(order) - 1):
                expected[i] = np.inf
            elif span > 0:
                expected[i] += (column[order[place + 1]] - column[order[place - 1]]) / span
    assert found == pytest.approx(expected)


@given(some_losses, st.data())
def test_the_order_is_violation_then_front_then_room(losses, data):
    n = len(losses)
    violation = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0, np.inf]), min_size=n, max_size=n)))
    order = pareto.order(losses, violation)
    assert sorted(order) == list(range(n))
    assert (np.diff(np.where(np.isinf(violation), 1e9, violation)[order]) >= 0).all()
    kept = [i for i in order if violation[i] == 0]
    ranks = brute_ranks(losses[kept]) if kept else np.empty(0)
    assert (np.diff(ranks) >= 0).all()
    for level in np.unique(ranks) if losses.shape[1] > 1 else ():
        mine = np.array(kept)[ranks == level]
        # Room is measured in the order of the rows: ties between equal values go by place.
        room = dict(zip(sorted(mine), pareto.crowding(losses[sorted(mine)]), strict=True))
        assert all(room[a] >= room[b] for a, b in pairwise(mine))


@pytest.mark.parametrize("losses", [1, 2, 3])
@given(data=st.data())
def test_hypervolume_is_the_count_of_dominated_cells(losses, data):
    points, reference = data.draw(grids(losses, most=8)), np.full(losses, SIDE - 1.0)
    inside = points[(points < reference).all(axis=1)]
    assert pareto.hypervolume(points, reference) == pytest.approx(counted(inside, reference))


@pytest.mark.parametrize("losses", [2, 3])
@given(data=st.data())
def test_hypervolume_is_that_of_moocore(losses, data):
    """Random fronts; some points are there twice, some lie on the reference in one loss or in all."""
    seed, n = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(1, 60))
    rng, reference = np.random.default_rng(seed), np.full(losses, 1.0)
    points = rng.random((n, losses)) * data.draw(st.sampled_from([0.5, 1.0, 1.3]))
    points = np.concatenate([points, points[rng.integers(0, n, data.draw(st.integers(0, 5)))]])
    for row in data.draw(st.lists(st.integers(0, len(points) - 1), max_size=5)):
        points[row, data.draw(st.integers(0, losses - 1))] = 1.0
    if data.draw(st.booleans()):
        points[-1] = reference
    assert pareto.hypervolume(points, reference) == pytest.approx(moocore.hypervolume(points, ref=reference), rel=1e-12)
    fronts = points[pareto.front(points)]
    theirs = np.unique(points[moocore.is_nondominated(points)], axis=0)
    assert (fronts[np.lexsort(fronts.T[::-1])] == theirs[np.lexsort(theirs.T[::-1])]).all()


def test_hypervolume_of_four_losses_by_inclusion_and_exclusion():
    a, b = np.array([0.0, 2.0, 1.0, 0.0]), np.array([2.0, 0.0, 0.0, 1.0])
    reference = np.full(4, 3.0)
    both = np.prod(reference - np.maximum(a, b))
    expected = np.prod(reference - a) + np.prod(reference - b) - both
    assert pareto.hypervolume(np.stack([a, b]), reference) == pytest.approx(expected)


@given(grids(2, most=20))
def test_the_trace_is_the_hypervolume_of_every_prefix(losses):
    reference = np.array([SIDE - 1.0, SIDE - 1.5])
    found = pareto.hypervolume_trace(losses, reference)
    assert found == pytest.approx([pareto.hypervolume(losses[: i + 1], reference) for i in range(len(losses))])


def test_the_trace_skips_what_is_invalid():
    losses = np.array([[np.nan, 0.0], [1.0, 1.0], [np.inf, np.inf], [0.0, np.nan], [0.0, 0.0]])
    assert pareto.hypervolume_trace(losses, np.array([2.0, 2.0])).tolist() == [0, 1, 1, 1, 4]


def test_nothing_has_no_front_and_no_volume():
    empty = np.empty((0, 2))
    assert pareto.front(empty).shape == pareto.ranks(empty).shape == pareto.order(empty).shape == (0,)
    assert pareto.hypervolume(empty, np.ones(2)) == 0
    assert pareto.hypervolume(np.ones((3, 2)), np.ones(2)) == 0, "on the reference is not beyond it"


@given(grids(2, most=20), grids(2, most=8))
def test_hypervolume_improvement_is_what_a_further_point_adds(losses, further):
    reference = np.array([SIDE - 1.0, SIDE - 1.5])
    have = pareto.hypervolume(losses, reference)
    improvement = pareto.HypervolumeImprovement(losses[pareto.front(losses)], reference)
    expected = [pareto.hypervolume(np.concatenate([losses, point[None]]), reference) - have for point in further]
    assert improvement.of(further[:, 0], further[:, 1]) == pytest.approx(expected)


@given(st.integers(1, 3).flatmap(lambda m: grids(m, most=15)))
def test_a_front_joined_point_by_point_is_the_front(losses):
    front = np.empty((0, losses.shape[1]))
    for point in losses:
        front = pareto.joined(front, point)
    whole = losses[pareto.front(losses)]
    assert front[np.lexsort(front.T[::-1])].tolist() == whole[np.lexsort(whole.T[::-1])].tolist()
