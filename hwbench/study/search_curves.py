"""The figure of a validation: how far strategies are from the exact front as they go on, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.study import figures

LEAST = 1e-3
"""Percent of missing hypervolume that counts as none: a logarithmic axis has no 0."""
FEWEST_TICKS, MOST_TICKS = 3, 10
"""Numbers on the y-axis."""
Stated = Mapping[str, Sequence[float | None]]
"""`value`, `low`, `high`, at every mark."""


@figures.drawn
def curves(marks: Sequence[int], stated: Mapping[str, Stated], ours: str, peers: Sequence[str], asked: int) -> Any:
    """What each strategy still lacks of the exact hypervolume after so many evaluations; lower is better.

    Every strategy has a colour, a line and a marker that no other has together; bars are the intervals, moved apart a little.

    Args:
        marks: Evaluations.
        stated: Strategy -> `value`, `low` and `high` of its share of the exact hypervolume at the marks; None where it was not
            run so far, or has no interval.
        ours: Drawn thick.
        peers: Other people's programs, drawn dashed.
        asked: Evaluations asked for: where the axis ends.
    """
    figure = figures.new_figure(8.5, 5.2)
    axes = figure.subplots()
    order = sorted(stated, key=lambda name: _last(stated[name]["value"]), reverse=True)
    for i, name in enumerate(order):
        xs, ys, bars = _missing_percent(marks, stated[name])
        mine, peer = name == ours, name in peers
        axes.errorbar(
            xs * 1.012 ** (i - (len(order) - 1) / 2), ys, yerr=bars, label=name, color=figures.SERIES[i % len(figures.SERIES)],
            marker=figures.MARKERS[(i + i // len(figures.SERIES)) % len(figures.MARKERS)], markersize=6 if mine else 5,
            markerfacecolor="white" if peer else None, linewidth=2.6 if mine else 1.2, linestyle=_dashes(i, peer),
            elinewidth=1, capsize=2.5, zorder=4 if mine else 2,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="evaluations", ylabel="missing hypervolume [%]")
    axes.set_xlim(marks[0] / 1.12, max(asked, marks[0]) * 1.12)
    ticks = sorted({asked, *(mark for mark in marks if mark <= asked / 1.15 or mark == asked)})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    _plain_ticks(axes)
    axes.minorticks_off()
    axes.grid(True)
    figure.legend(loc="outside right upper", title="best at the end first")
    return figure


def _last(values: Sequence[float | None]) -> float:
    return next((value for value in reversed(values) if value is not None), 0.0)


def _dashes(i: int, peer: bool) -> Any:
    """Solid lines for our own, dashed ones for peers; the colours' second round is told apart by its dashes, too."""
    second = i >= len(figures.SERIES)
    return (0, (5, 1, 1, 1)) if peer and second else (0, (5, 2)) if peer else (0, (1, 1)) if second else "-"


def _missing_percent(marks: Sequence[int], stated: Stated) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(evaluations, missing %, [below, above] of the interval's bars) at the marks that were reached; none is below LEAST."""
    there = [i for i, value in enumerate(stated["value"]) if value is not None]

    def missing(key: str) -> np.ndarray:
        shares = [stated["value"][i] if stated[key][i] is None else stated[key][i] for i in there]
        return np.asarray(np.maximum(100 * (1 - np.array(shares, float)), LEAST))

    ys = missing("value")
    ends = np.array([ys - missing("high"), missing("low") - ys])
    return np.array([marks[i] for i in there], float), ys, np.maximum(ends, 0.0)


def _plain_ticks(axes: Any) -> None:
    """Numbers on the y-axis: at most ten, and some also where it spans less than a power of ten."""
    from matplotlib.ticker import MaxNLocator

    low, high = axes.get_ylim()
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    sets = [[digit * 10.0**power for power in powers for digit in digits] for digits in ((1, 2, 5), (1,), range(1, 10))]
    sets = [[tick for tick in ticks if low <= tick <= high] for ticks in sets]
    ticks = next((each for each in sets if FEWEST_TICKS <= len(each) <= MOST_TICKS), [])
    if not ticks:
        ticks = [float(tick) for tick in MaxNLocator(FEWEST_TICKS + 1).tick_values(low, high) if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" if tick > LEAST else f"{LEAST:g} or less" for tick in ticks])
    axes.set_ylim(low, high)
