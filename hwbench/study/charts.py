"""Charts of reports, each described once, as Vega-Lite: drawn as SVG for report.md by vl-convert, in the page by vega-embed.

    svg(agreement(points, "min"))

Milliseconds and percent. Same values in, same bytes out. Colours are those of Okabe and Ito (2008), which colour-blind readers
tell apart, and nothing is told by colour alone. What is light or dark is no part of a description: `web/theme.json` has both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hwbench.study.figures import BLUE, GREEN, GREY, ORANGE, SERIES

Spec = dict[str, Any]
WEB = Path(__file__).with_name("web")
"""Everything a page is made of that is no number."""
VEGA_LITE = "6.4"
"""Which of the versions that vl-convert brings draws: that of web/vega-lite.min.js."""
WIDTH = 460
"""In pixels, of a drawing; in a page a chart is as wide as its place."""
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left", "triangle-right", "stroke")
CLIP = re.compile(r"\bclip(\d+)\b")
SEPARATORS = re.compile("[\u2028\u2029]")
TRIALS, CHOSEN = "trials", "chosen"
"""Data that a page filters, and what was clicked on."""
WITHIN, OVER = "trial within the budget", "trial over the budget"
PREDICTED = "finalist, predicted"
ROLES = {"random": ("circle", GREY), "finalist": ("diamond", GREEN), "winner": ("triangle-up", ORANGE)}
"""Role -> symbol and colour, everywhere the same."""


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


def svg(spec: Spec) -> str:
    """A description drawn on white: the same one gives the same bytes."""
    import vl_convert

    told = {**spec, "config": themes()["light"]}
    drawn = str(vl_convert.vegalite_to_svg(told, vl_version=VEGA_LITE))
    numbers: dict[str, int] = {}  # Vega counts clips over all drawings of a process
    return CLIP.sub(lambda found: f"clip{numbers.setdefault(found[1], len(numbers))}", drawn) + "\n"


@cache
def themes() -> dict[str, dict[str, Any]]:
    """`light` and `dark`: configurations of Vega-Lite."""
    stored = json.loads((WEB / "theme.json").read_text(encoding="utf-8"))

    def joined(name: str) -> dict[str, Any]:
        mine, shared = stored[name], stored["shared"]
        both = {key: {**shared[key], **mine[key]} for key in shared if isinstance(shared[key], dict) and key in mine}
        return {**shared, **mine, **both}

    return {name: joined(name) for name in ("light", "dark")}


def chart(title: str, height: int, layers: Sequence[Spec], **more: Any) -> Spec:
    """A description of layers that share their axes."""
    told: Spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": title, "width": WIDTH, "height": height, "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers), **more,
    }  # fmt: skip
    return dict(_in_one_line(told))


def _in_one_line(told: Any) -> Any:
    """Without the two ends of a line that JSON allows in a text and Vega's expressions, which quote names, do not."""
    if isinstance(told, str):
        return SEPARATORS.sub(" ", told)
    if isinstance(told, Mapping):
        return {_in_one_line(key): _in_one_line(each) for key, each in told.items()}
    return [_in_one_line(each) for each in told] if isinstance(told, list | tuple) else told


def below(specs: Sequence[Spec]) -> Spec:
    """One description of several, one below the other."""
    parts = [{key: value for key, value in each.items() if key not in ("$schema", "autosize")} for each in specs]
    return {"$schema": specs[0]["$schema"], "vconcat": parts}


def _axis(field: str, title: str, **scale: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False, **scale}}


def _values(rows: Sequence[Mapping[str, Any]]) -> Spec:
    return {"values": list(rows)}


def front(
    trials: Sequence[Mapping[str, Any]],
    best: Sequence[tuple[float, float]],
    points: Sequence[Point],
    budget: float,
    margin: float,
    labels: tuple[str, str],
    near: bool = False,
) -> Spec:
    """Every trial, the front and the finalists.

    Args:
        trials: `cost`, `upper` and `accuracy` of every trial; whatever else a row holds is told where it is pointed at.
        best: (cost, score) of the front, by rising cost.
        points: Finalists with their measurements.
        budget: The most the cost may be.
        margin: What the search kept below it, relative; 0 draws no second line.
        labels: Of the cost and the score.
        near: Enlarged around the budget, not the whole range.
    """
    scored = [p for p in points if p.score is not None]
    ranges = _near(points, best, budget, margin) if near else ({}, {})
    x, y = _axis("cost", labels[0], **ranges[0]), _axis("accuracy", labels[1], **ranges[1])
    names = [OVER, WITHIN, "front", "budget", *(["budget less the margin"] if margin else []), PREDICTED]
    colours = ["#b9b9b9", "#6fb3dc", BLUE, "#7a7a7a", *(["#b07aa1"] if margin else []), BLUE]
    measured = [role for role in ("finalist", "winner") if any(p.role == role for p in scored)]
    names += [f"{role}, measured" for role in measured]
    colours += [ROLES[role][1] for role in measured]
    scale = {"domain": names, "range": colours}

    def colour(name: str) -> Spec:
        return {"datum": name, "type": "nominal", "scale": scale}

    def line(name: str, at: float, dashes: Sequence[int]) -> Spec:
        mark = {"type": "rule", "strokeWidth": 1.4, "strokeDash": list(dashes), "tooltip": True}
        return {"data": _values([{"cost": at}]), "mark": mark, "encoding": {"x": x, "color": colour(name)}}

    layers: list[Spec] = [
        {
            "data": {"name": TRIALS},
            "transform": [{"calculate": f"datum.upper <= {float(budget)!r} ? '{WITHIN}' : '{OVER}'", "as": "kept"}],
            "mark": {
                "type": "point",
                "filled": True,
                "size": 26 if near else 14,
                "opacity": 0.75,
                "clip": True,
                "tooltip": True,
            },
            "encoding": {"x": x, "y": y, "color": {"field": "kept", "type": "nominal", "scale": scale}},
        },
        {
            "data": _values([{"cost": cost, "accuracy": score} for cost, score in best]),
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8, "clip": True},
            "encoding": {"x": x, "y": y, "order": {"field": "cost"}, "color": colour("front")},
        },
        line("budget", budget, (1, 0)),
        *([line("budget less the margin", budget / (1 + margin), (4, 3))] if margin else []),
        {
            "data": _values([{"cost": p.predicted_ms, "accuracy": p.score, "network": p.role} for p in scored]),
            "mark": {"type": "point", "size": 150, "strokeWidth": 1.8, "clip": True, "tooltip": True},
            "encoding": {"x": x, "y": y, "color": colour(PREDICTED)},
        },
    ]
    for role in measured:
        rows = [
            {"network": role, "cost": p.measured_ms, "low": p.low_ms, "high": p.high_ms, "accuracy": p.score}
            for p in scored
            if p.role == role
        ]
        named = colour(f"{role}, measured")
        bar = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": named}
        mark = {"type": "point", "filled": True, "shape": ROLES[role][0], "size": 170 if role == "winner" else 90}
        layers += [
            {"data": _values(rows), "mark": {"type": "rule", "strokeWidth": 1.6, "clip": True}, "encoding": bar},
            {"data": _values(rows), "mark": {**mark, "opacity": 1, "clip": True, "tooltip": True},
             "encoding": {"x": x, "y": y, "color": named}},
        ]  # fmt: skip
    ring = {"type": "point", "size": 260, "strokeWidth": 2.5, "style": "ink", "filled": False, "fill": None, "clip": True}
    layers.append({"data": {"name": CHOSEN}, "mark": ring, "encoding": {"x": x, "y": y}})
    datasets = {TRIALS: list(trials), CHOSEN: []}
    return chart("Around the budget" if near else "All trials", 330, layers, datasets=datasets)


def _near(
    points: Sequence[Point], best: Sequence[tuple[float, float]], budget: float, margin: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Limits around the finalists and the budget, high enough to see the front cross it."""
    xs = [budget, budget / (1 + margin), *(x for p in points for x in (p.predicted_ms, p.low_ms, p.high_ms))]
    pad = 0.15 * (max(xs) - min(xs)) or 0.05 * budget
    low, high = min(xs) - pad, max(xs) + pad
    ys = [p.score for p in points if p.score is not None] + [score for cost, score in best if low <= cost <= high]
    if not ys:
        return {"domain": [low, high], "nice": False}, {}
    middle, half = (max(ys) + min(ys)) / 2, 0.65 * (max(ys) - min(ys)) or 0.01 * abs(max(ys)) or 1.0
    return {"domain": [low, high], "nice": False}, {"domain": [middle - half, middle + half], "nice": False}


def _by_role(field: str = "network") -> Spec:
    """Colour and symbol of networks by their role."""
    roles = list(ROLES)
    return {
        "color": {"field": field, "type": "nominal", "scale": {"domain": roles, "range": [ROLES[r][1] for r in roles]}},
        "shape": {"field": field, "type": "nominal", "scale": {"domain": roles, "range": [ROLES[r][0] for r in roles]}},
    }


def agreement(points: Sequence[Point], statistic: str) -> Spec:
    """Predicted against measured, of every verified network; `statistic` names what was measured."""
    values = [v for p in points for v in (p.predicted_ms, p.low_ms, p.high_ms)]
    pad = 0.06 * (max(values) - min(values)) or 0.05 * max(values)
    low, high = min(values) - pad, max(values) + pad
    limits = {"domain": [low, high], "nice": False}
    x = _axis("measured", f"measured latency, {statistic} [ms]", **limits)
    y = _axis("predicted", f"predicted latency, {statistic} [ms]", **limits)
    ends = _values([{"measured": at, "predicted": at, "least": 0.95 * at, "most": 1.05 * at} for at in (low, high)])
    rows = _values([
        {"network": p.role, "measured": p.measured_ms, "predicted": p.predicted_ms, "low": p.low_ms, "high": p.high_ms}
        for p in points
    ])  # fmt: skip
    looks = _by_role()
    return chart("Predicted against measured", 310, [
        {"data": ends, "mark": {"type": "area", "style": "band", "clip": True},
         "encoding": {"x": x, "y": {**y, "field": "least"}, "y2": {"field": "most"}}},
        {"data": ends, "mark": {"type": "line", "style": "ink", "strokeWidth": 1}, "encoding": {"x": x, "y": y}},
        {"data": rows, "mark": {"type": "rule", "strokeWidth": 1.4},
         "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": looks["color"]}},
        {"data": rows, "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "tooltip": True},
         "encoding": {"x": x, "y": y, **looks}},
    ])  # fmt: skip


def errors_of(errors: Mapping[str, Sequence[tuple[str, float]]]) -> Spec:
    """A row of dots per estimate; dots of one row are moved apart in a fixed pattern.

    Args:
        errors: Estimate -> (role, signed relative error) of every verified network.
    """
    rows = [
        {"estimate": name, "network": role, "error": 100 * error, "apart": i % 5 - 2}
        for name, mine in errors.items()
        for i, (role, error) in enumerate(mine)
    ]
    far = max([5.5, *(108 * abs(error) for mine in errors.values() for _, error in mine)])
    x = _axis("error", "(estimate - measured) / measured [%]", domain=[-far, far], nice=False)
    y = {"field": "estimate", "type": "nominal", "title": None, "sort": list(errors)}
    return chart("Error of every estimate", 62 * len(errors) + 40, [
        {"data": _values([{"error": -5, "to": 5}]), "mark": {"type": "rect", "style": "band"},
         "encoding": {"x": x, "x2": {"field": "to"}}},
        {"data": _values([{"error": 0}]), "mark": {"type": "rule", "style": "ink"}, "encoding": {"x": x}},
        {"data": _values(rows), "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.9, "tooltip": True},
         "encoding": {"x": x, "y": y, "yOffset": {"field": "apart", "type": "quantitative", "scale": {"domain": [-6, 6]}},
                      **_by_role()}},
    ])  # fmt: skip


def shares(rows: Mapping[str, Mapping[str, float]], kinds: Sequence[str], total_ms: float, title: str) -> Spec:
    """A bar per row, in pieces by kind, each with its ms and its share of a total behind it.

    Args:
        rows: Row -> kind -> ms; a row whose sum is negative gets a bar to the left.
        kinds: All of them, in the order of their colours.
        total_ms: What shares are of.
        title: Of the panel.
    """
    pieces = [
        {"part": row, "kind": kind, "ms": parts[kind], "share": 100 * parts[kind] / total_ms, "place": i}
        for row, parts in rows.items()
        for i, kind in enumerate(kinds)
        if kind in parts
    ]
    sums = {row: sum(parts.values()) for row, parts in rows.items()}
    ends = [{"part": row, "end": max(end, 0.0), "words": _ms_and_share(end, total_ms)} for row, end in sums.items()]
    largest, least = max([*sums.values(), 0.0]), min([*sums.values(), 0.0])
    x = {"type": "quantitative", "title": "ms", "scale": {"domain": [1.05 * least, 1.45 * largest], "nice": False}}
    y = {"field": "part", "type": "nominal", "sort": list(rows), "title": None}
    colours = [SERIES[i % len(SERIES)] for i in range(len(kinds))]
    looks: Spec = {"field": "kind", "type": "nominal", "sort": list(kinds), "scale": {"domain": list(kinds), "range": colours}}
    if all(len(parts) <= 1 for parts in rows.values()):
        looks["legend"] = None
    return chart(title, 26 * len(rows) + 10, [
        {"data": _values(pieces), "mark": {"type": "bar", "tooltip": True},
         "encoding": {"x": {**x, "field": "ms", "stack": "zero"}, "y": y, "color": looks, "order": {"field": "place"}}},
        {"data": _values(ends), "mark": {"type": "text", "align": "left", "dx": 4, "style": "label"},
         "encoding": {"x": {**x, "field": "end"}, "y": y, "text": {"field": "words"}}},
    ])  # fmt: skip


def _ms_and_share(value: float, total: float) -> str:
    text = f"{value:#.3g}".rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"
    return f"{text} ms, {100 * value / total:.1f} %"


def cells(
    title: str, names: tuple[str, str], sides: tuple[Sequence[str], Sequence[str]], rows: Sequence[Mapping[str, Any]]
) -> Spec:
    """A map of coloured cells, each with its text.

    Args:
        title: Of the panel.
        names: Of columns and lines.
        sides: The columns and the lines, in order; the first line is the lowest.
        rows: `x`, `y`, `ms` (None has no colour) and `words` of every cell.
    """
    x = {"field": "x", "type": "ordinal", "sort": list(sides[0]), "title": names[0], "axis": {"labelAngle": 0}}
    y = {"field": "y", "type": "ordinal", "sort": list(reversed(sides[1])), "title": names[1]}
    colours = {"range": ["#f1f7fb", "#8cc0de", "#3c8fc2"]}
    return chart(title, 46 * len(sides[1]) + 10, [
        {"transform": [{"filter": "isValid(datum.ms)"}], "mark": {"type": "rect", "tooltip": True},
         "encoding": {"x": x, "y": y, "color": {"field": "ms", "type": "quantitative", "scale": colours, "legend": None}}},
        {"transform": [{"filter": "isValid(datum.ms)"}], "mark": {"type": "text", "color": "#111111"},
         "encoding": {"x": x, "y": y, "text": {"field": "words"}}},
        {"transform": [{"filter": "!isValid(datum.ms)"}], "mark": {"type": "text", "style": "label", "opacity": 0.6},
         "encoding": {"x": x, "y": y, "text": {"field": "words"}}},
    ], data=_values(rows))  # fmt: skip


def multiples(groups: Mapping[str, Mapping[str, Sequence[float]]], base: str) -> Spec:
    """Latencies as multiples of one runtime's: a dot for every row, a bar at the geometric mean; left is faster.

    Args:
        groups: Kind of op -> runtime -> multiples.
        base: The runtime all others are multiples of; it is the line at 1.
    """
    runtimes = [name for name in next(iter(groups.values())) if name != base]
    rows = [
        {"kind": kind, "runtime": name, "multiple": each}
        for kind, mine in groups.items()
        for name in runtimes
        for each in mine[name]
    ]
    every = [1.0, *(each for mine in groups.values() for name in runtimes for each in mine[name])]
    x = {
        "type": "quantitative",
        "scale": {"type": "log", "domain": [0.93 * min(every), 1.07 * max(every)], "nice": False},
        "title": f"latency as a multiple of {base}'s (left: faster)",
        "axis": {"values": [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100], "format": "~g"},
    }
    y = {"field": "kind", "type": "nominal", "sort": list(groups), "title": None}
    apart = {"field": "runtime", "type": "nominal", "sort": runtimes}
    looks = {
        "color": {"field": "runtime", "type": "nominal", "scale": {"domain": runtimes, "range": list(SERIES[: len(runtimes)])}}
    }
    means = [{"calculate": "log(datum.multiple)", "as": "log"}, {"aggregate": [{"op": "mean", "field": "log", "as": "mean"}],
             "groupby": ["kind", "runtime"]}, {"calculate": "exp(datum.mean)", "as": "multiple"}]  # fmt: skip
    x["field"] = "multiple"
    one = {"data": _values([{"multiple": 1}]), "encoding": {"x": x}}
    tick = {"type": "tick", "thickness": 2.5, "size": 14, "tooltip": True}
    return chart(f"Runtimes against {base}", 44 * len(groups) + 20, [
        {**one, "mark": {"type": "rule", "style": "ink"}},
        {"mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.55, "tooltip": True},
         "encoding": {"x": x, "y": y, "yOffset": apart, **looks}},
        {"transform": means, "mark": tick, "encoding": {"x": x, "y": y, "yOffset": apart, **looks}},
    ], data=_values(rows))  # fmt: skip


def curves(title: str, labels: tuple[str, str], rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Spec:
    """Lines with their intervals on two logarithmic axes; lines also differ by their symbols.

    Args:
        title: Of the panel.
        labels: Of the axes.
        rows: `name`, `x`, `value`, `low` and `high`.
        names: All of them, in the order of the legend.
    """
    log = {"type": "log", "nice": False, "padding": 12}
    x = {"field": "x", "type": "quantitative", "scale": log, "title": labels[0],
         "axis": {"values": sorted({row["x"] for row in rows})}}  # fmt: skip
    y = {"type": "quantitative", "scale": log, "title": labels[1]}
    order = {"field": "name", "type": "nominal"}
    colours = [SERIES[i % len(SERIES)] for i in range(len(names))]
    symbols = [SYMBOLS[(i + i // len(SERIES)) % len(SYMBOLS)] for i in range(len(names))]
    colour = {**order, "scale": {"domain": list(names), "range": colours}}
    shape = {**order, "scale": {"domain": list(names), "range": symbols}}
    return chart(title, 380, [
        {"mark": {"type": "line", "strokeWidth": 1.6}, "encoding": {"x": x, "y": {**y, "field": "value"}, "color": colour}},
        {"mark": {"type": "rule"}, "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}},
        {"mark": {"type": "point", "filled": True, "size": 45, "tooltip": True},
         "encoding": {"x": x, "y": {**y, "field": "value"}, "color": colour, "shape": shape}},
    ], data=_values(rows))  # fmt: skip


def process_levels(levels_ms: Mapping[str, Sequence[float]]) -> Spec:
    """The level that each fresh process of a measurement ran at, a row of dots per model; a bar stands at the lowest."""
    rows = [
        {"model": name, "process": i, "ms": level} for name, levels in levels_ms.items() for i, level in enumerate(levels, 1)
    ]
    lowest = [{"model": name, "ms": min(levels)} for name, levels in levels_ms.items() if levels]
    x, y = _axis("ms", "level [ms]"), {"field": "model", "type": "nominal", "sort": list(levels_ms), "title": None}
    look = {
        "color": {
            "field": "model",
            "type": "nominal",
            "legend": None,
            "sort": list(levels_ms),
            "scale": {"range": list(SERIES)},
        }
    }
    return chart("Process by process", 44 * len(levels_ms) + 10, [
        {"data": _values(rows), "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.65, "tooltip": True},
         "encoding": {"x": x, "y": y, **look}},
        {"data": _values(lowest), "mark": {"type": "tick", "thickness": 2.5, "size": 26}, "encoding": {"x": x, "y": y, **look}},
    ])  # fmt: skip


def bars(title: str, values: Sequence[tuple[str, float]]) -> Spec:
    """A bar per name."""
    rows = [{"name": name, "value": value} for name, value in values]
    y = {"field": "name", "type": "nominal", "sort": [name for name, _ in values], "title": None}
    bar: Spec = {"type": "bar", "color": BLUE, "tooltip": True}
    return chart(title, 26 * len(rows) + 10, [
        {"mark": bar, "encoding": {"x": {"field": "value", "type": "quantitative", "title": None}, "y": y}},
    ], data=_values(rows))  # fmt: skip
