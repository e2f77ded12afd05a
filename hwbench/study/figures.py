"""Figures of a report as SVG text, in milliseconds and percent: same values in, same bytes out.

Drawn on Figure objects of their own; matplotlib is imported on the first call and its settings are put back.
Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

MAX_CLOUD = 3000
"""Trials drawn at most; more are thinned evenly in order of evaluation."""
BLUE, ORANGE, GREEN, INK, GREY = "#0072B2", "#D55E00", "#009E73", "#333333", "#8a8a8a"
SERIES = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", INK)
"""Where several things of one kind stand side by side."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++", "oo")
"""Beside the colours of SERIES, for whoever does not see them."""
ROLES = {"random": ("o", GREY), "finalist": ("D", GREEN), "winner": ("*", ORANGE)}
"""Role -> marker and colour, everywhere the same."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.edgecolor": GREY, "axes.labelcolor": INK, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "xtick.color": INK, "ytick.color": INK, "grid.color": "#e8e8e8",
    "legend.frameon": True, "legend.framealpha": 0.95, "legend.edgecolor": "#dddddd", "legend.fontsize": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One measured network."""

    role: str
    score: float | None
    predicted_ms: float
    measured_ms: float
    low_ms: float
    high_ms: float
    """Where the bar of its spread begins and ends."""


def drawn(draw: Callable[..., Any]) -> Callable[..., str]:
    """Turns a function that returns a Figure into one that returns SVG text without date or version."""

    @wraps(draw)
    def render(*args: Any, **named: Any) -> str:
        import matplotlib as mpl

        buffer = io.StringIO()
        with mpl.rc_context({**STYLE, "svg.hashsalt": draw.__name__}):
            draw(*args, **named).savefig(
                buffer, format="svg", dpi=200, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
            )
        text = re.sub(r"\A.*?(?=<svg)", "", buffer.getvalue(), count=1, flags=re.DOTALL)
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"

    return render


def new_figure(width: float, height: float) -> Any:
    """An empty Figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


PANEL = 5.0
"""Width in inches of one panel of a picture: two fit side by side on a page, and on a phone its text can still be read."""


@drawn
def front(
    trials: Mapping[str, np.ndarray],
    best: Sequence[tuple[float, float]],
    points: Sequence[Point],
    budget_ms: float,
    margin: float,
    labels: tuple[str, str],
    near: bool = False,
) -> Any:
    """Every trial, the front and the finalists.

    Args:
        trials: `latency_ms`, `upper_ms` and `accuracy` of every trial.
        best: (predicted ms, score) of the front, by rising latency.
        points: Finalists with their measurements.
        budget_ms: The budget.
        margin: What the search kept below it, relative; 0 draws no second line.
        labels: Of the latency and the score.
        near: Enlarged around the budget, not the whole range.
    """
    figure = new_figure(PANEL, 4.6)
    axes = figure.subplots()
    _cloud(axes, trials, budget_ms, size=16 if near else 6)
    xs, ys = np.array(best, float).reshape(-1, 2).T
    axes.plot(xs, ys, drawstyle="steps-post", color=BLUE, linewidth=1.6, label="front", zorder=3)
    axes.axvline(budget_ms, color=INK, linewidth=1.2, label="budget", zorder=2)
    if margin:
        dashes = (0, (4, 3))
        axes.axvline(
            budget_ms / (1 + margin), color=INK, linewidth=1, linestyle=dashes, label="budget less the margin", zorder=2
        )
    _finalists(axes, points, scale=1.0 if near else 0.8)
    axes.set(xlabel=labels[0], ylabel=labels[1], title="Around the budget" if near else "All trials")
    axes.grid(True)
    if near:
        _enlarge(axes, points, (xs, ys), budget_ms, margin)
    _legend_below(figure, axes)
    return figure


def _legend_below(figure: Any, axes: Any) -> None:
    """The legend; the cloud's dots are drawn larger in it, to be seen."""
    legend = figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    for handle in legend.legend_handles:
        if handle.get_label().startswith("trial"):
            handle.set_sizes([30])


def _cloud(axes: Any, trials: Mapping[str, np.ndarray], budget_ms: float, size: float) -> None:
    n = len(trials["latency_ms"])
    kept = np.unique(np.linspace(0, n - 1, min(n, MAX_CLOUD)).astype(int))
    x, y, upper = (np.asarray(trials[name])[kept] for name in ("latency_ms", "accuracy", "upper_ms"))
    within, over = upper <= budget_ms, upper > budget_ms
    for chosen, colour, label in ((over, "#cccccc", "trial over the budget"), (within, "#8fc3e3", "trial within the budget")):
        axes.scatter(x[chosen], y[chosen], s=size, color=colour, linewidths=0, label=label, rasterized=True, zorder=1)


def _finalists(axes: Any, points: Sequence[Point], scale: float) -> None:
    """Predictions as hollow rings, measurements as filled markers with their spread."""
    scored = [p for p in points if p.score is not None]
    predicted = [p.predicted_ms for p in scored]
    axes.scatter(
        predicted,
        [p.score for p in scored],
        s=110 * scale**2,
        facecolors="none",
        edgecolors=BLUE,
        linewidths=1.4,
        label="finalist, predicted",
        zorder=4,
    )
    for role in ("finalist", "winner"):
        chosen = [p for p in scored if p.role == role]
        marker, colour = ROLES[role]
        axes.errorbar(
            [p.measured_ms for p in chosen], [p.score for p in chosen],
            xerr=_bars(chosen), linestyle="none", color=colour, marker=marker,
            markersize=scale * (15 if role == "winner" else 6), markeredgecolor="white", markeredgewidth=0.7,
            elinewidth=1.2, capsize=2.5, label=f"{role}, measured", zorder=6 if role == "winner" else 5,
        )  # fmt: skip


def _bars(points: Sequence[Point]) -> list[list[float]]:
    return [[p.measured_ms - p.low_ms for p in points], [p.high_ms - p.measured_ms for p in points]]


def _enlarge(axes: Any, points: Sequence[Point], best: tuple[Any, Any], budget_ms: float, margin: float) -> None:
    """Limits around the finalists and the budget, high enough to see the front cross it."""
    xs = [budget_ms, budget_ms / (1 + margin)]
    for p in points:
        xs += [p.predicted_ms, p.low_ms, p.high_ms]
    pad = 0.15 * (max(xs) - min(xs)) or 0.05 * budget_ms
    low, high = min(xs) - pad, max(xs) + pad
    ys = [p.score for p in points if p.score is not None]
    ys += [float(y) for x, y in zip(*best, strict=True) if low <= x <= high]
    middle, half = (max(ys) + min(ys)) / 2, 0.65 * (max(ys) - min(ys)) or 0.01 * abs(max(ys)) or 1.0
    axes.set(xlim=(low, high), ylim=(middle - half, middle + half))


@drawn
def agreement(points: Sequence[Point], statistic: str) -> Any:
    """Predicted against measured.

    Args:
        points: Every verified network.
        statistic: Name of the statistic, for the axes.
    """
    figure = new_figure(PANEL, 4.3)
    axes = figure.subplots()
    values = [v for p in points for v in (p.predicted_ms, p.low_ms, p.high_ms)]
    pad = 0.06 * (max(values) - min(values)) or 0.05 * max(values)
    ends = np.array([min(values) - pad, max(values) + pad])
    axes.fill_between(ends, 0.95 * ends, 1.05 * ends, color="#eef3f7", label="within 5 %", zorder=0)
    axes.plot(ends, ends, color=INK, linewidth=1, label="predicted = measured", zorder=1)
    for role, (marker, colour) in ROLES.items():
        chosen = [p for p in points if p.role == role]
        if chosen:
            axes.errorbar(
                [p.measured_ms for p in chosen], [p.predicted_ms for p in chosen],
                xerr=_bars(chosen), linestyle="none", color=colour, marker=marker,
                markersize=12 if role == "winner" else 5, markeredgecolor="white", markeredgewidth=0.7, elinewidth=1, capsize=2,
                label=role, zorder=4 if role == "winner" else 3,
            )  # fmt: skip
    axes.set(xlim=ends, ylim=ends, xlabel=f"measured latency, {statistic} [ms]", ylabel=f"predicted latency, {statistic} [ms]")
    axes.set_title("Predicted against measured")
    axes.grid(True)
    axes.legend(loc="upper left")
    return figure


@drawn
def errors_of(errors: Mapping[str, Sequence[tuple[str, float]]]) -> Any:
    """One line of dots per estimate; dots of one line are moved apart in a fixed pattern.

    Args:
        errors: Estimate -> (role, signed relative error) of every verified network.
    """
    figure = new_figure(PANEL, 4.3)
    axes = figure.subplots()
    axes.axvspan(-5, 5, color="#eef3f7", zorder=0)
    axes.axvline(0, color=INK, linewidth=1, zorder=1)
    for line, mine in enumerate(errors.values()):
        for role, (marker, colour) in ROLES.items():
            chosen = [(i, 100 * e) for i, (r, e) in enumerate(mine) if r == role]
            shift = [line + 0.08 * (i % 5 - 2) for i, _ in chosen]
            axes.scatter(
                [e for _, e in chosen], shift, s=120 if role == "winner" else 26, marker=marker, color=colour,
                edgecolors="white", linewidths=0.7, zorder=4 if role == "winner" else 3,
            )  # fmt: skip
    axes.set_yticks(range(len(errors)), [name.replace(" ", "\n", 1) for name in errors])
    axes.set(ylim=(len(errors) - 0.5, -0.5), xlabel="(estimate - measured) / measured [%]")
    axes.tick_params(axis="y", length=0)
    axes.set_title("Error of every estimate")
    axes.grid(True, axis="x")
    return figure


@drawn
def shares(rows: Mapping[str, Mapping[str, float]], kinds: Sequence[str], total_ms: float, title: str) -> Any:
    """A bar per row, in pieces by kind, each with its ms and its share of a total behind it.

    Args:
        rows: Row -> kind -> ms; a row whose sum is negative gets a bar to the left.
        kinds: All of them, in the order of their colours; each also has a hatch of its own, for whoever sees no colours.
        total_ms: What shares are of.
        title: Of the panel.
    """
    figure = new_figure(PANEL, 0.95 + 0.27 * len(rows) + (0.24 * -(-len(kinds) // 2)))
    axes = figure.subplots()
    looks = {kind: (SERIES[i % len(SERIES)], HATCHES[i % len(HATCHES)]) for i, kind in enumerate(kinds)}
    ends = []
    for y, parts in enumerate(rows.values()):
        start = 0.0
        for kind in (kind for kind in kinds if kind in parts):
            colour, hatch = looks[kind]
            axes.barh(y, parts[kind], left=start, height=0.72, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            start += parts[kind]
        ends.append(start)
        text = f"{start:#.3g}".rstrip(".") if abs(start) < 1000 else f"{start:,.0f}"
        text += f" ms, {100 * start / total_ms:.1f} %"
        axes.annotate(text, (max(start, 0.0), y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(1.05 * min(0.0, *ends), 1.42 * max(ends)), xlabel="ms", title=title)
    axes.axvline(0, color=INK, linewidth=1)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    if any(len(parts) > 1 for parts in rows.values()):
        from matplotlib.patches import Patch

        patches = [Patch(facecolor=c, hatch=h, edgecolor="white", linewidth=0, label=kind) for kind, (c, h) in looks.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=2)
    return figure


@drawn
def multiples(groups: Mapping[str, Mapping[str, Sequence[float]]], base: str) -> Any:
    """Latencies as multiples of one runtime's: a dot for every row, a bar at the geometric mean; left is faster.

    Args:
        groups: Kind of op -> runtime -> multiples.
        base: The runtime all others are multiples of; it is the line at 1.
    """
    runtimes = [name for name in next(iter(groups.values())) if name != base]
    figure = new_figure(8.5, 1.2 + 0.34 * len(groups))
    axes = figure.subplots()
    step = 0.7 / len(runtimes)
    for i, runtime in enumerate(runtimes):
        colour, offset, labelled = SERIES[i % len(SERIES)], (i + 0.5) * step - 0.35, False
        for y, kind in enumerate(groups):
            xs = groups[kind][runtime]
            if not xs:
                continue
            label = None if labelled else runtime
            axes.plot(xs, np.full(len(xs), y + offset), "o", color=colour, markersize=3.2, alpha=0.55, linewidth=0, label=label)
            axes.plot(
                [np.exp(np.mean(np.log(xs)))] * 2, [y + offset - step / 2, y + offset + step / 2], color=colour, linewidth=2
            )
            labelled = True
    axes.axvline(1.0, color=INK, linewidth=1)
    for y in range(len(groups) - 1):
        axes.axhline(y + 0.5, color="#e8e8e8", linewidth=0.8)
    axes.set(xscale="log", xlabel=f"latency as a multiple of {base}'s (left: faster)", ylim=(len(groups) - 0.5, -0.5))
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if axes.get_xlim()[0] <= t <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(groups)), list(groups))
    axes.grid(True, axis="x")
    figure.legend(loc="outside right upper")
    return figure


@drawn
def process_levels(levels_ms: Mapping[str, Sequence[float]]) -> Any:
    """The level that each fresh process of a measurement ran at, a row of dots per model; a bar stands at the lowest."""
    figure = new_figure(PANEL, 0.75 + 0.55 * len(levels_ms))
    axes = figure.subplots()
    for y, (name, levels) in enumerate(levels_ms.items()):
        colour = SERIES[y % len(SERIES)]
        axes.plot(levels, np.full(len(levels), y), "o", color=colour, markersize=6, alpha=0.6, linewidth=0)
        axes.plot([min(levels)] * 2, [y - 0.22, y + 0.22], color=colour, linewidth=2)
        # Above its dots, not beside the axis: names are long. A $ would begin a formula.
        axes.text(0, y - 0.28, name.replace("$", r"\$"), transform=axes.get_yaxis_transform(), va="bottom", fontsize=8)
    axes.set(xlabel="level [ms]", ylim=(len(levels_ms) - 0.6, -0.75), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    return figure
