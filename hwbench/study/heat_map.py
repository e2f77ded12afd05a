"""Heat maps: latencies of an op over two sizes (a chart), and what a device's winner loses on others (PNG: many cells)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.network.spec import OpSpec
from hwbench.study import charts, figures

MANY_CELLS = 12
"""Lines of a heat map up to which its cells carry numbers as large as the axes'."""


@dataclass(frozen=True)
class HeatMap:
    """Latency over two dimensions of an op; a cell that is not in `cells` was never measured."""

    title: str
    x_name: str
    y_name: str
    xs: Sequence[float]
    ys: Sequence[float]
    cells: Mapping[tuple[float, float], tuple[float, bool]]
    """(x, y) -> latency in ms, and whether its row is doubtful (verdict not stable)."""


@dataclass(frozen=True)
class _Layer:
    """Cells of a heat map that share one scale of colours."""

    values: np.ndarray
    """[lines, columns]; NaN where the layer has no cell."""
    colours: Sequence[str]
    """From the least value to the largest."""
    label: str = ""
    """Of its colour bar, which begins at 0; no bar without."""


def maps_of(rows: Mapping[OpSpec, Mapping[str, Any] | None], op: str, across: str) -> list[HeatMap]:
    """Maps of an op's stored rows over `across` and width: one per combination of the dimensions these do not settle."""
    specs = [spec for spec in rows if spec.op == op]
    widths = sorted({spec["dim"] for spec in specs})
    ratio = across == "hidden" and len(widths) > 1

    def cell(spec: OpSpec) -> tuple[float, float]:
        return (round(spec["hidden"] / spec["dim"], 4) if ratio else spec[across]), spec["dim"]

    values: dict[str, dict[tuple[float, float], set[Any]]] = {}
    for spec in specs:
        for name, value in spec.dims:
            values.setdefault(name, {}).setdefault(cell(spec), set()).add(value)
    free = [name for name, at in values.items() if name not in ("dim", across) and any(len(each) > 1 for each in at.values())]
    fixed = [name for name, at in values.items() if name == "tokens" and name not in free]
    groups: dict[tuple[Any, ...], list[OpSpec]] = {}
    for spec in specs:
        groups.setdefault(tuple(spec[name] for name in free), []).append(spec)
    xs = sorted({cell(spec)[0] for spec in specs})
    maps = []
    for members in groups.values():
        title = ", ".join([op.replace("_", " "), *(f"{name} {members[0][name]}" for name in (*fixed, *free)), "min [ms]"])
        cells = {
            cell(spec): (row["latency_min_ms"], row["verdict"] != "stable")
            for spec in members
            if (row := rows[spec]) is not None
        }
        maps.append(HeatMap(title, "hidden / width" if ratio else across, "width", xs, widths, cells))
    return maps


def heat_map(one: HeatMap) -> charts.Spec:
    """An annotated heat map."""
    rows = []
    for x, y in itertools.product(one.xs, one.ys):
        value, doubtful = one.cells.get((x, y), (None, False))
        words = "not measured" if value is None else f"{value:.3f}{'*' if doubtful else ''}"
        rows.append({"x": f"{x:g}", "y": f"{y:g}", "ms": value, "words": words})
    sides = ([f"{x:g}" for x in one.xs], [f"{y:g}" for y in one.ys])
    return charts.cells(one.title, (one.x_name, one.y_name), sides, rows)


def cross_table(devices: Sequence[str], lost: np.ndarray, excess: np.ndarray, title: str = "") -> bytes:
    """PNG: what each device's winner (line) does on each device (column); blue cells lose accuracy, orange ones the budget.

    Args:
        devices: Names of lines and columns.
        lost: Accuracy points lost within the budget; NaN where it is broken.
        excess: Latency above the budget, relative; 0 where it is kept.
        title: Of the picture.
    """
    import matplotlib as mpl

    broken = np.where(excess > 0, 100 * excess, np.nan)
    texts = np.where(np.isnan(broken), np.char.mod("%.2f", lost), np.char.mod("%.0f", broken)).tolist()
    layers = [
        _Layer(lost, ["#f7f7f7", figures.BLUE], "accuracy points lost"),
        _Layer(broken, ["#f7f7f7", figures.ORANGE], "latency above the budget [%]"),
    ]
    side = 2.2 + 0.42 * len(devices)
    with mpl.rc_context(figures.STYLE):
        figure = figures.new_figure(side + 1.6, side)
        axes = figure.subplots()
        _heat_map(axes, devices, devices, layers, texts, size=9 if len(devices) <= MANY_CELLS else 6)
        axes.tick_params(axis="x", rotation=90)
        axes.set(xlabel="used on", ylabel="winner of", title=title)
        axes.invert_yaxis()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def _heat_map(
    axes: Any, xs: Sequence[str], ys: Sequence[str], layers: Sequence[_Layer], texts: Sequence[Sequence[str]], size: float = 9
) -> None:
    """Cells of one or several scales of colours, each with its text; `texts` is [lines][columns], as `values` are."""
    from matplotlib.colors import LinearSegmentedColormap

    for layer in layers:
        if np.isnan(layer.values).all():
            continue
        colours = LinearSegmentedColormap.from_list(layer.label, list(layer.colours))
        least = 0 if layer.label else None
        mesh = axes.pcolormesh(np.ma.masked_invalid(layer.values), cmap=colours, vmin=least, edgecolors="white", linewidth=1.5)
        if layer.label:
            axes.figure.colorbar(mesh, ax=axes, label=layer.label, shrink=0.6)
    missing = np.all([np.isnan(layer.values) for layer in layers], axis=0)
    for i, j in np.ndindex(missing.shape):
        colour = figures.GREY if missing[i, j] else "#111111"
        axes.text(j + 0.5, i + 0.5, texts[i][j], ha="center", va="center", color=colour, fontsize=size)
    axes.set_xticks(np.arange(len(xs)) + 0.5, xs)
    axes.set_yticks(np.arange(len(ys)) + 0.5, ys)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
