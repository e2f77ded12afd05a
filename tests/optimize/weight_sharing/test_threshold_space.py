"""Algorithm 1: the subnets found are the largest within their costs, found by looking at every threshold by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.accuracy.supernet.bert.units import UnitScores
from hwbench.core.errors import UsageError
from hwbench.network.op.base import op_of
from hwbench.optimize.cost import op_cost
from hwbench.optimize.weight_sharing.threshold_space import nested, threshold_space
from hwbench.space.activity import sample
from hwbench.space.encoder import EncoderSizes, EncoderSpace, Widths
from hwbench.space.lowering import lower

FULL = Widths((4, 4, 4), (64, 64, 64))
GRID = EncoderSpace.grid(EncoderSizes(50, 40, 32, 8, 2, 16), FULL, 8)
MACS = op_cost(
    GRID, "macs_m", "million multiply-accumulates", lambda specs: np.array([op_of(s).work(s).macs / 1e6 for s in specs])
)
ROWS = op_cost(
    GRID,
    "latency_ms",
    "ms",
    lambda specs: np.array([0.003 + op_of(s).work(s).macs / 4e6 + 0.001 * (len(s.key) % 3) for s in specs]),
)
"""Like a table's rows: not quite monotone in the widths."""


def scores(seed: int = 0) -> UnitScores:
    rng = np.random.default_rng(seed)
    return UnitScores(rng.normal(size=(3, 4)), rng.normal(size=(3, 64)))


def by_hand(found: UnitScores, threshold: float) -> Widths:
    """Units above the threshold, at least one head; channels up to the next multiple of 8."""
    heads = [max(1, sum(score > threshold for score in layer)) for layer in found.heads]
    hidden = [max(8, -(-sum(score > threshold for score in layer) // 8) * 8) for layer in found.channels]
    return Widths(tuple(heads), tuple(hidden))


def test_the_path_is_what_every_threshold_keeps():
    found = scores()
    thresholds, path = nested(GRID, found)
    assert GRID.widths(path[:, 0]) == Widths((1, 1, 1), (8, 8, 8))
    assert GRID.widths(path[:, -1]) == FULL
    assert (np.diff(path.astype(int), axis=1) >= 0).all(), "every subnet holds the one before"
    assert (np.diff(thresholds) < 0).all()
    for threshold, column in zip(thresholds, path.T, strict=True):
        assert by_hand(found, threshold) == GRID.widths(column)


@pytest.mark.parametrize("cost", [MACS, ROWS], ids=["macs", "rows"])
@pytest.mark.parametrize("n", [2, 5, 9])
def test_each_subnet_is_the_largest_within_its_cost(cost, n):
    found = scores(n)
    full = float(cost.value(GRID.column_of(FULL)[:, None])[0])
    made = threshold_space(GRID, found, cost.value, 0.4 * full, full, n)
    assert [anchor.asked for anchor in made.anchors] == pytest.approx(np.linspace(0.4 * full, full, n))
    every = np.concatenate([found.heads.ravel(), found.channels.ravel(), [-np.inf]])
    for anchor in made.anchors:
        assert anchor.widths == by_hand(found, anchor.threshold)
        column = GRID.column_of(anchor.widths)[:, None]
        assert float(cost.value(column)[0]) == pytest.approx(anchor.cost)
        assert anchor.cost <= anchor.asked * (1 + 1e-9)
        larger = {by_hand(found, t) for t in every if t < anchor.threshold} - {anchor.widths}
        costs = [float(cost.value(GRID.column_of(widths)[:, None])[0]) for widths in larger]
        assert not costs or max(costs) > anchor.asked, "else a larger one would have been within"
    assert made.anchors[-1].widths == FULL


def test_the_full_encoder_is_there_though_smaller_ones_are_told_to_cost_more():
    """As a table does that was measured on a busy machine: a budget is a share of the full encoder's latency, not of theirs."""
    _, path = nested(GRID, scores())

    def cost(columns):
        full = (columns == path[:, -1:]).all(axis=0)
        return np.where(full, 4.0, MACS.value(columns) / MACS.value(path[:, -2:-1]) * 5)

    made = threshold_space(GRID, scores(), cost, 2.0, 4.0, 3)
    assert made.anchors[-1].widths == FULL
    assert made.anchors[-1].cost == 4.0
    assert all(anchor.cost <= anchor.asked * (1 + 1e-9) for anchor in made.anchors)
    assert threshold_space(GRID, scores(), cost, 2.0, 3.5, 3).anchors[-1].widths != FULL, "beyond what was asked for"


def test_a_layer_has_the_widths_of_all_subnets_and_no_others():
    full = float(MACS.value(GRID.column_of(FULL)[:, None])[0])
    made = threshold_space(GRID, scores(), MACS.value, 0.3 * full, 0.9 * full, 4)
    for gene in made.space.genes:
        if gene.layer is not None:
            seen = {getattr(anchor.widths, gene.name)[gene.layer] for anchor in made.anchors}
            assert set(gene.choices) == seen
            assert len(seen) <= 4
    assert max(anchor.cost for anchor in made.anchors) <= 0.9 * full


def test_the_result_is_a_space_like_any_other():
    full = float(MACS.value(GRID.column_of(FULL)[:, None])[0])
    space = threshold_space(GRID, scores(), MACS.value, 0.3 * full, full).space
    cost = op_cost(space, "macs_m", "", lambda specs: np.array([op_of(s).work(s).macs / 1e6 for s in specs]))
    drawn = sample(space, 20, np.random.default_rng(0))
    expected = [sum(op_of(s).work(s).macs for s in lower(space, column).network.specs) / 1e6 for column in drawn.T]
    assert cost.value(drawn) == pytest.approx(expected)


def test_what_cannot_be_reached_is_said():
    with pytest.raises(UsageError, match=r"the smallest, of one head and 8 hidden channels per layer, costs"):
        threshold_space(GRID, scores(), MACS.value, 1e-3, 1.0)
    with pytest.raises(UsageError, match="at least 2 subnets"):
        threshold_space(GRID, scores(), MACS.value, 0.5, 1.0, 1)


def test_without_importance_widths_are_uniform():
    full = float(MACS.value(GRID.column_of(FULL)[:, None])[0])
    made = threshold_space(GRID, UnitScores.even(FULL), MACS.value, 0.3 * full, full)
    assert all(len(set(anchor.widths.heads)) == len(set(anchor.widths.hidden)) == 1 for anchor in made.anchors)
