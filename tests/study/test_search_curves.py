"""The figure of a validation: numbers on both axes, lines that differ without colour, intervals, the range asked for."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.study import search_curves
from hwbench.study.leaderboard import MARKS

NAMES = [f"strategy-{i}" for i in range(12)]


def stated(*values: float | None, spread: float | None = 0.01) -> dict[str, list[float | None]]:
    full = [*values, *[None] * (len(MARKS) - len(values))]
    ends = {
        name: [None if v is None or spread is None else v + sign * spread for v in full]
        for name, sign in (("low", -1), ("high", 1))
    }
    return {"value": full, **ends}


def drawn(shares, asked, ours="strategy-0", peers=("strategy-1",)):
    """The figure's axes, before it becomes text."""
    figure = search_curves.curves.__wrapped__(MARKS, shares, ours, peers, asked)
    figure.canvas.draw()
    return figure.axes[0]


def labels(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


def test_lines_differ_without_their_colours():
    axes = drawn({name: stated(0.5 + 0.01 * i, 0.7 + 0.01 * i) for i, name in enumerate(NAMES)}, 100)
    looks = [(c[0].get_marker(), c[0].get_linestyle(), c[0].get_color()) for c in axes.containers]
    assert len(looks) == len(set(looks)) == len(NAMES)
    assert len({(c[0].get_marker(), c[0].get_linestyle(), c[0].get_markerfacecolor()) for c in axes.containers}) == len(NAMES)
    for round_of_colours in (axes.containers[:7], axes.containers[7:]):
        assert len({c[0].get_marker() for c in round_of_colours}) == len(round_of_colours)


@pytest.mark.parametrize("asked", [50, 100, 300, 1000])
def test_the_axis_ends_where_the_search_was_asked_to(asked):
    values = [0.6, 0.8, 0.9, 0.95, 0.99][: sum(mark <= asked for mark in MARKS)]
    axes = drawn({"strategy-0": stated(*values)}, asked)
    low, high = axes.get_xlim()
    assert low < MARKS[0] <= asked < high < 1.2 * asked
    assert labels(axes.xaxis)[-1] == f"{asked:,}"


@pytest.mark.parametrize("values", [(0.60, 0.61), (0.2, 0.9999), (0.5, 1.0), (0.95,)])
def test_both_axes_have_numbers(values):
    axes = drawn({"strategy-0": stated(*values, spread=0.001)}, 100)
    assert 3 <= len(labels(axes.yaxis)) <= 10
    assert all(float(text.split()[0]) > 0 for text in labels(axes.yaxis))
    svg = search_curves.curves(MARKS, {"strategy-0": stated(*values)}, "strategy-0", [], 100)
    assert "<!-- 50 -->" in svg
    assert f"<!-- {labels(axes.xaxis)[-1]} -->" in svg


def test_intervals_are_bars_of_their_length_and_missing_ones_none():
    axes = drawn({"strategy-0": stated(0.6, 0.8, spread=0.05), "strategy-1": stated(0.5, 0.7, spread=None)}, 100)
    with_bars, without = axes.containers
    (bars,) = (np.array(each.get_segments()) for each in with_bars[2])
    np.testing.assert_allclose(bars[:, :, 1], [[35, 45], [15, 25]])
    (none,) = (np.array(each.get_segments()) for each in without[2])
    np.testing.assert_allclose(none[:, 0, 1], none[:, 1, 1])


def test_nothing_missing_is_drawn_at_the_bottom_and_said_to_be_so():
    axes = drawn({"strategy-0": stated(0.5, 1.0, spread=None)}, 100)
    assert axes.containers[0][0].get_ydata().tolist() == [50, search_curves.LEAST]
    assert labels(axes.yaxis)[0] == "0.001 or less"
