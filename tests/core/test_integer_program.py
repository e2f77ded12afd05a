"""Sums of tables, maximised under limits: equal to looking at every combination."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hwbench.core import integer_program
from hwbench.core.errors import UsageError
from hwbench.core.factors import added
from hwbench.core.integer_program import TooEntangled, maximise


def everything(sizes) -> np.ndarray:
    return np.array(list(itertools.product(*map(range, sizes))), np.uint8)


def best(sizes, worth, limits, refused=()) -> float | None:
    """By looking at all."""
    rows = everything(sizes)
    kept = np.ones(len(rows), bool)
    for factors, most in limits:
        kept &= added(factors, rows) <= most
    for genes, table in refused:
        kept &= ~table[tuple(rows[:, gene] for gene in genes)]
    return float(added(worth, rows[kept]).max()) if kept.any() else None


def drawn(rng: np.random.Generator):
    """A few tables over some genes, and as many over others with the same numbers, as the layers of a network have."""
    sizes = rng.integers(2, 4, 4).tolist()
    scopes = [tuple(sorted(rng.choice(4, size, replace=False).tolist())) for size in rng.integers(1, 4, 4)]
    wide, layers = len(sizes), int(rng.integers(1, 4))
    sizes += [3, 2] * layers

    def tables():
        found = [(scope, rng.integers(-5, 6, [sizes[g] for g in scope]).astype(float)) for scope in scopes]
        joint, alone = rng.integers(0, 5, (sizes[0], 3, 2)), rng.integers(0, 5, (sizes[1], 3))
        for layer in range(layers):
            first = wide + 2 * layer
            found += [((0, first, first + 1), joint.astype(float)), ((1, first), alone.astype(float))]
        return [((), np.array(float(rng.integers(0, 3)))), *found]

    worth, prices = tables(), [tables() for _ in range(int(rng.integers(0, 4)))]
    rows = everything(sizes)
    limits = [(price, float(np.quantile(added(price, rows), rng.uniform(0.0, 0.5)))) for price in prices]
    refused = [((0, 1), rng.random((sizes[0], sizes[1])) < 0.3)]
    return sizes, worth, limits, refused


@pytest.mark.parametrize("seed", range(40))
def test_the_best_of_random_sums_is_that_of_everything(seed):
    sizes, worth, limits, refused = drawn(np.random.default_rng(seed))
    expected, found = best(sizes, worth, limits, refused), maximise(sizes, worth, limits, refused)
    if expected is None:
        assert found.choices is None
        return
    assert found.choices is not None
    assert added(worth, found.choices[None])[0] == pytest.approx(expected, abs=1e-9)
    assert found.bound == pytest.approx(expected, rel=1e-7, abs=1e-6)
    assert all(added(price, found.choices[None])[0] <= most for price, most in limits)
    assert not any(table[tuple(found.choices[list(genes)])] for genes, table in refused)


def test_interchangeable_layers_are_counted_not_permuted():
    """Forty layers of three choices: alone they are 10**19 combinations."""
    gains, prices = np.array([1.0, 2.0, 3.1]), np.array([1.0, 2.0, 3.0])
    worth, price = ([((layer,), table) for layer in range(40)] for table in (gains, prices))
    blocks = integer_program._blocks([3] * 40, [worth, price], ())
    assert [(len(block.members), block.tables.shape) for block in blocks] == [(40, (2, 1, 3))]
    found = maximise([3] * 40, worth, [(price, 79.0)])
    assert np.bincount(found.choices).tolist() == [20, 1, 19]
    assert found.bound == pytest.approx(20 + 2 + 19 * 3.1)


def test_limits_that_are_met_to_the_last_bit_are_kept():
    """A limit that is what some choices cost exactly."""
    rng = np.random.default_rng(3)
    worth, price = ([((gene,), rng.random(4)) for gene in range(6)] for _ in range(2))
    rows = everything([4] * 6)
    for most in added(price, rows)[rng.integers(0, len(rows), 10)]:
        found = maximise([4] * 6, worth, [(price, float(most))], kept=lambda c, most=most: added(price, c[None])[0] <= most)
        assert added(worth, found.choices[None])[0] == pytest.approx(best([4] * 6, worth, [(price, most)]), abs=1e-12)


def test_an_answer_within_the_tolerance_only_is_asked_again_with_less_room():
    """A limit 1e-8 below what the best costs: HiGHS takes it for kept, whoever asks does not. The bound stays an upper one."""
    worth = price = [((0,), np.array([0.0, 0.5, 1.0]))]
    found = maximise([3], worth, [(price, 1.0 - 1e-10)], kept=lambda choices: added(price, choices[None])[0] <= 1.0 - 1e-10)
    assert found.choices.tolist() == [1]
    assert found.bound >= 0.5
    with pytest.raises(UsageError, match="ended just beyond a limit"):
        maximise([3], worth, [(price, 2.0)], kept=lambda choices: False)


def test_what_no_table_reads_is_0_and_constants_count():
    found = maximise([3, 4], [((), np.array(7.0)), ((0,), np.array([1.0, 5.0, 2.0]))], [])
    assert (found.choices.tolist(), found.bound) == ([1, 0], pytest.approx(12.0))
    assert maximise([3], [((), np.array(7.0))], [([((), np.array(2.0))], 2.0)]).bound == 7.0
    assert maximise([3], [((), np.array(7.0))], [([((), np.array(2.0))], 1.0)]).choices is None


def test_nodes_bound_the_work_and_the_bound_holds():
    rng = np.random.default_rng(0)
    worth, price = ([((gene,), rng.integers(1, 10**6, 6).astype(float)) for gene in range(40)] for _ in range(2))
    whole = maximise([6] * 40, worth, [(price, 1e7)])
    few = maximise([6] * 40, worth, [(price, 1e7)], nodes=1)
    value = added(worth, whole.choices[None])[0]
    assert added(worth, few.choices[None])[0] <= value * (1 + 1e-9)
    assert few.bound >= value * (1 - 1e-9)


def test_what_cannot_be_written_out_says_so(monkeypatch):
    monkeypatch.setattr(integer_program, "MOST_CELLS", 8)
    with pytest.raises(TooEntangled, match="depends on 2 choices together, 9 joint choices, more than the 8"):
        maximise([3, 3], [((0, 1), np.zeros((3, 3)))], [])
    monkeypatch.setattr(integer_program, "MOST_COLUMNS", 5)
    with pytest.raises(TooEntangled, match="more than 5 columns"):
        maximise([3, 3], [((0,), np.arange(3.0)), ((1,), np.arange(3.0) ** 2)], [])
    with pytest.raises(UsageError, match="infinite or NaN"):
        maximise([2], [((0,), np.array([1.0, np.inf]))], [])
