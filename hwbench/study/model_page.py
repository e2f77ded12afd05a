"""Where a model's time goes, as one HTML page: for whoever wants to know what to change.

    hwbench predict MODEL.onnx --out page.html
    python -m studies.page_check page.html shots/      looks at it in a browser, at 1200 and 400 px, light and dark

By type, by part of the model, in running order, against the device's roof, and the slowest kernels as a table. The page has
no script and asks for nothing. Names in it come from a model somebody else made: the template escapes them, `plain` takes
out characters that draw nothing or turn the text around. Same answer in, same bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from hwbench.device.files import Device
from hwbench.predictor.model_latency import BOUNDED, CALIBRATION, MEASURED, MODELLED, PRICES, Layer, ModelLatency
from hwbench.study import layer_groups, roofline
from hwbench.study.figures import GREEN, GREY, ORANGE, SERIES
from hwbench.study.page import filled
from hwbench.study.render import MISSING, ms
from hwbench.study.time_split import Part, by_group, by_kernel, by_type, most_time, shapes, short_type

TEMPLATE = "model_page.html.j2"
SLOWEST = 40
"""Kernels in the table."""
TYPES = 14
"""Types with a bar of their own; the rest share one."""
LONGEST = 96
"""Characters of a name that are shown."""
PRICE_COLOURS = {MEASURED: GREEN, MODELLED: SERIES[5], BOUNDED: ORANGE, CALIBRATION: "#A08FC7"}
TYPE_COLOURS = SERIES[:6]
"""Of the slowest types; all others are grey."""
STRIP = 1000
"""Length of the strip that shows the running order, in the user units of its drawing."""


@dataclass(frozen=True)
class Segment:
    """A piece of a bar or of the strip."""

    length: float
    colour: str
    words: str
    start: float = 0.0
    """On the strip; the pieces of a bar follow each other."""


@dataclass(frozen=True)
class Bar:
    """A row of a chart: its length is relative to the longest."""

    name: str
    value: str
    share: str
    words: str
    segments: tuple[Segment, ...]


def model_page(found: ModelLatency, device: Device | None) -> str:
    """The page of one model.

    Args:
        found: The answer.
        device: Whose peaks are the roof; None where no file describes it.
    """
    layers, total = found.layers, found.latency_ms
    grouping = layer_groups.group([layer.name for layer in layers])
    types, groups, kernels = by_type(layers), by_group(layers, grouping.names), by_kernel(layers)
    colours = {part.name: colour for part, colour in zip(types, TYPE_COLOURS, strict=False)}
    roof = None if device is None else roofline.roof_of(device.undisturbed_peaks, found.setting)
    return filled(
        TEMPLATE,
        name=plain(PurePath(found.model).name),
        headline=_headline(found),
        facts=_facts(found),
        notes=[plain(note, 600) for note in found.notes],
        prices=_prices(found),
        insights=_insights(types, kernels, total),
        legend=[
            *((plain(kind), colour) for kind, colour in colours.items()),
            *([("other types", GREY)] if len(types) > len(colours) else []),
        ],
        types=_bars(_rest_together(types), found, colours),
        groups=_bars(groups, found, colours),
        rule=plain(grouping.rule, 240),
        strip=_strip(layers, total, colours),
        bands=_bands(layers, grouping.names),
        strip_length=STRIP,
        kernels_ms=ms(found.kernels_ms),
        calibration=_calibration(found),
        **_roofline(found, roof, kernels, device),
        slowest=[
            *(_slowest_row(kernel, total, roof) for kernel in kernels[:SLOWEST]),
            *_rest_row(kernels[SLOWEST:], total),
            (*_share_and_ms(found.calibration_ms, total), CALIBRATION, *[""] * 5),
        ],
        listed=len(kernels[:SLOWEST]),
        distinct=len(kernels),
        group_rows=[
            *(_group_row(part, total) for part in groups),
            (CALIBRATION, *_share_and_ms(found.calibration_ms, total), *[""] * 3),
        ],
    )


def plain(text: str, longest: int = LONGEST) -> str:
    """Text on one line, its middle left out where it is long; what cannot be printed is shown as a sign for that."""
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[-half:]}"
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)


def percent(share: float) -> str:
    """A share of the time; one that is there is never shown as 0."""
    if 0 < abs(share) < 0.0005:
        return f"{'<' if share > 0 else '>'}\N{NO-BREAK SPACE}{'-' * (share < 0)}0.1\N{NO-BREAK SPACE}%"
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def _headline(found: ModelLatency) -> dict[str, str]:
    return {
        "latency": ms(found.latency_ms),
        "low": ms(found.low_ms, found.latency_ms),
        "high": ms(found.high_ms, found.latency_ms),
        "statistic": {"min": "fastest run (min)", "p50": "median run (p50)"}.get(found.statistic, found.statistic),
        "where": plain(f"{found.device} / {found.runtime} / {found.setting}", 200),
    }


def _facts(found: ModelLatency) -> list[tuple[str, str]]:
    """What the answer rests on."""
    inputs = [f"{plain(name)} {'x'.join(map(str, sides)) or 'scalar'}" for name, sides in found.shapes.items()]
    fused = [f"{number} {plain(short_type(kind))}" for kind, number in sorted(found.fused.items())]
    error = found.predictor.get("mean_abs_error")
    known = {
        "model": plain(found.model, 300),
        "inputs": ", ".join(inputs),
        f"fused by {plain(found.runtime)}": ", ".join(fused),
        "prices": plain(found.source, 300),
        "predictor": plain(str(found.predictor.get("name") or ""), 200),
        "its mean error": "" if error is None else f"{percent(error)} on {found.predictor.get('networks')} unseen networks",
    }
    return [(name, value) for name, value in known.items() if value]


def _prices(found: ModelLatency) -> list[Segment]:
    """The shares of the three prices and of the calibration, in one bar; what is negative has no length."""
    shares = found.shares
    longest = sum(max(share, 0.0) for share in shares.values())
    return [
        Segment(round(100 * max(share, 0.0) / longest, 3), PRICE_COLOURS[price], f"{percent(share)} {price}")
        for price, share in shares.items()
    ]


def _insights(types: Sequence[Part], kernels: Sequence[Part], total: float) -> list[str]:
    """What to look at first."""
    if not kernels:
        return []
    half, each = most_time(kernels, 0.5), kernels[0]
    kinds = f"{half} of {len(kernels)} different kernels take" if half > 1 else f"One of {len(kernels)} different kernels takes"
    return [
        f"{plain(types[0].name)} takes {percent(types[0].latency_ms / total)} of the time.",
        f"{kinds} at least half of the kernels' time.",
        f"The slowest one, {_what(each)}, runs {each.runs} times and takes {percent(each.latency_ms / total)}."
        if each.runs > 1
        else f"The slowest one, {_what(each)}, takes {percent(each.latency_ms / total)}.",
    ]


def _rest_together(types: Sequence[Part]) -> list[Part]:
    """The slowest types, and one part for all others where there are many."""
    if len(types) <= TYPES:
        return list(types)
    rest = types[TYPES - 1 :]
    return [*types[: TYPES - 1], Part(f"{len(rest)} other types", tuple(layer for part in rest for layer in part.layers))]


def _calibration(found: ModelLatency) -> str:
    """What stands between the kernels' prices and the latency."""
    more = "more" if found.calibration_ms >= 0 else "less"
    return (
        f"Whole networks taught that such a model takes {ms(abs(found.calibration_ms), found.latency_ms)} ms {more} than the "
        f"{ms(found.kernels_ms, found.latency_ms)} ms of its kernels, for caches, memory and calls: that is the calibration."
    )


def _bars(parts: Sequence[Part], found: ModelLatency, colours: Mapping[str, str]) -> list[Bar]:
    """One bar per part, in pieces by type of kernel, and one for the calibration; types without a colour are one piece."""
    total, calibration_ms = found.latency_ms, found.calibration_ms
    longest = max([calibration_ms, *(part.latency_ms for part in parts)]) or 1.0
    bars = []
    for part in parts:
        own = {name: each for name, each in part.types.items() if name in colours}
        pieces = [(plain(name), colours[name], each) for name, each in own.items()]
        if len(own) < len(part.types):
            pieces.append(("other types", GREY, part.latency_ms - sum(own.values())))
        segments = tuple(
            Segment(round(100 * each / longest, 3), colour, f"{name}: {ms(each)} ms") for name, colour, each in pieces
        )
        number = f"{len(part.layers)} kernel{'s' * (len(part.layers) != 1)}"
        bars.append(Bar(plain(part.name), ms(part.latency_ms), percent(part.latency_ms / total), number, segments))
    share, latency = _share_and_ms(calibration_ms, total)
    length = round(100 * max(calibration_ms, 0.0) / longest, 3)
    piece = Segment(length, PRICE_COLOURS[CALIBRATION], f"{CALIBRATION}: {latency} ms")
    return [*bars, Bar(CALIBRATION, latency, share, CALIBRATION, (piece,))]


def _strip(layers: Sequence[Layer], total: float, colours: Mapping[str, str]) -> list[Segment]:
    """Every kernel where it runs; all of them together are as long as the strip."""
    found, start = [], 0.0
    kernels_ms = sum(layer.latency_ms for layer in layers)
    for layer in layers:
        length = STRIP * layer.latency_ms / kernels_ms
        colour = colours.get(short_type(layer.type), GREY)
        found.append(Segment(round(length, 3), colour, f"{plain(layer.name)}: {_layer_words(layer, total)}", round(start, 3)))
        start += length
    return found


def _bands(layers: Sequence[Layer], groups: Sequence[str]) -> list[Segment]:
    """Neighbours of one group, as bands below the strip in two alternating greys."""
    found: list[Segment] = []
    start, last = 0.0, None
    kernels_ms = sum(layer.latency_ms for layer in layers)
    for layer, group in zip(layers, groups, strict=True):
        length = STRIP * layer.latency_ms / kernels_ms
        if group == last:
            found[-1] = replace(found[-1], length=round(start + length - found[-1].start, 3))
        else:
            found.append(Segment(round(length, 3), ("band", "band other")[len(found) % 2], plain(group), round(start, 3)))
        start, last = start + length, group
    return found


def _roofline(
    found: ModelLatency, roof: roofline.Roof | None, kernels: Sequence[Part], device: Device | None
) -> dict[str, Any]:
    """The drawing, with colours and words."""
    drawing = roofline.roofline(kernels, roof)
    dots = () if drawing is None else drawing.dots
    left_out = ""
    if drawing is not None and drawing.missing:
        number = f"{drawing.missing} kernel{'s' * (drawing.missing != 1)}"
        left_out = f"{number} without FLOPs or bytes ({percent(drawing.missing_ms / found.latency_ms)} of the time) left out."
    return {
        "frame": roofline,
        "roofline": drawing,
        "dots": [(dot, PRICE_COLOURS[dot.kernel.layers[0].price], _kernel_words(dot.kernel, found.latency_ms)) for dot in dots],
        "price_key": [(price, PRICE_COLOURS[price]) for price in PRICES],
        "roof_words": [left_out, _roof_words(found, roof, kernels) if roof else _no_roof_words(found, device)],
    }


def _no_roof_words(found: ModelLatency, device: Device | None) -> str:
    """Why there is none."""
    if device is not None and roofline.roof_of(device.peaks, found.setting) is not None:
        why = "; ".join(dict.fromkeys(device.disturbed.values()))
        return f"No roof is drawn: the peaks of {plain(found.device)} were measured while it was disturbed ({plain(why, 240)})."
    return f"No roof is drawn: the file of {plain(found.device)} has no measured peaks for the threads of {found.setting}."


def _roof_words(found: ModelLatency, roof: roofline.Roof, kernels: Sequence[Part]) -> str:
    """What the roof is, and on which side of its ridge the time is spent."""
    points = [(kernel.latency_ms, at[0]) for kernel in kernels if (at := roofline.speed(kernel)) is not None]
    memory = sum(latency for latency, intensity in points if intensity < roof.ridge) / found.latency_ms
    arithmetic = sum(latency for latency, intensity in points if intensity >= roof.ridge) / found.latency_ms
    return (
        f"The line is what numpy reached on the device with {roof.threads} thread{'s' * (roof.threads != 1)}: "
        f"{roof.gflops:.4g} GFLOP/s (fp32) and {roof.bandwidth_gb_s:.4g} GB/s. {percent(memory)} of the time is spent left of "
        f"the ridge, where memory limits; {percent(arithmetic)} right of it, where arithmetic does. Data that stay in a cache, "
        "and kernels better than numpy's, may lie above the line."
    )


def _slowest_row(kernel: Part, total: float, roof: roofline.Roof | None) -> tuple[str, ...]:
    """Share, ms, type, times, price, shapes, share of the roof, first node."""
    first, at = kernel.layers[0], roofline.speed(kernel)
    reached = MISSING if roof is None or at is None else f"{100 * at[1] / roof.reachable(at[0]):.0f}\N{NO-BREAK SPACE}%"
    return (
        percent(kernel.latency_ms / total),
        ms(kernel.latency_ms),
        plain(short_type(first.type), 40),
        str(kernel.runs),
        _price(first.price, kernel.doubt),
        plain(shapes(first.kernel), 160) or MISSING,
        reached,
        plain(first.name) or MISSING,
    )


def _rest_row(kernels: Sequence[Part], total: float) -> list[tuple[str, ...]]:
    """One row for all kernels that have none of their own."""
    if not kernels:
        return []
    share, latency = _share_and_ms(sum(kernel.latency_ms for kernel in kernels), total)
    return [(share, latency, f"{len(kernels)} others", str(sum(kernel.runs for kernel in kernels)), *[""] * 4)]


def _share_and_ms(part_ms: float, total: float) -> tuple[str, str]:
    return percent(part_ms / total), ms(part_ms)


def _group_row(part: Part, total: float) -> tuple[str, ...]:
    """Name, share, ms, kernels, measured part, slowest type."""
    kind, latency_ms = next(iter(part.types.items()))
    return (
        plain(part.name),
        percent(part.latency_ms / total),
        ms(part.latency_ms),
        str(len(part.layers)),
        percent(part.measured_ms / part.latency_ms) if part.latency_ms else MISSING,
        f"{plain(kind, 40)}, {percent(latency_ms / part.latency_ms)}" if part.latency_ms else MISSING,
    )


def _what(kernel: Part) -> str:
    """A kernel's type and shapes, or its name where it has none."""
    first = kernel.layers[0]
    return f"{plain(short_type(first.type))} {plain(shapes(first.kernel) or first.name)}"


def _kernel_words(kernel: Part, total: float) -> str:
    """A dot's tooltip."""
    at, first = roofline.speed(kernel), kernel.layers[0]
    speed = "" if at is None else f", {at[0]:.3g} FLOPs per byte, {at[1]:.3g} GFLOP/s"
    share = f"{ms(kernel.latency_ms)} ms ({percent(kernel.latency_ms / total)})"
    return f"{_what(kernel)}: {share}, {_price(first.price, kernel.doubt)}{speed}; first: {plain(first.name)}"


def _layer_words(layer: Layer, total: float) -> str:
    often = f", {layer.times} times" if layer.times > 1 else ""
    price = _price(layer.price, layer.doubt)
    return f"{plain(short_type(layer.type))}, {ms(layer.latency_ms)} ms ({percent(layer.latency_ms / total)}){often}, {price}"


def _price(price: str, doubt: float) -> str:
    return f"{price} \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}{100 * doubt:.2g}\N{NO-BREAK SPACE}%"
