"""How fast a model's kernels compute against what the device could do, as a drawing: the roofline.

A kernel that does `i` FLOPs for every byte it moves reaches at most min(peak, i * bandwidth) GFLOP/s (Williams, Waterman and
Patterson, "Roofline", Communications of the ACM 52(4), 2009). Left of the ridge memory limits it, right of it arithmetic.
Bytes are the least traffic: each operand once. Peaks are those `hwbench device detect` measured with numpy, with as many
threads as the setting has; what stays in a cache may lie above the slope.

Positions are in the user units of an SVG of WIDTH x HEIGHT; both axes are logarithmic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwbench.study.time_split import Part

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 62
LARGEST, SMALLEST = 26.0, 2.5
"""Radius of the slowest kernel's dot, and the least one that can be seen."""


@dataclass(frozen=True)
class Roof:
    """What a device reaches at most."""

    gflops: float
    bandwidth_gb_s: float
    threads: int

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which on arithmetic limits."""
        return self.gflops / self.bandwidth_gb_s

    def reachable(self, intensity: float) -> float:
        """GFLOP/s at so many FLOPs per byte."""
        return min(self.gflops, intensity * self.bandwidth_gb_s)


@dataclass(frozen=True)
class Dot:
    """One distinct kernel, with all its repeats."""

    kernel: Part
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Roofline:
    """All positions of the drawing."""

    dots: tuple[Dot, ...]
    """Largest first, so that small ones lie on top."""
    missing: int
    """Kernels without FLOPs or bytes."""
    missing_ms: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    roof: tuple[tuple[float, float], ...]
    """Corners of the line; none where the device's peaks are unknown."""


def roof_of(peaks: Mapping[str, float], setting: str) -> Roof | None:
    """The roof of a setting's threads; None where the device's file has no such peaks."""
    threads = re.search(r"-t(\d+)(?:-|$)", setting)
    if threads is None:
        return None
    found = [peaks.get(f"{name}_{threads[1]}_threads") for name in ("gflops_fp32", "bandwidth_gb_s")]
    return None if found[0] is None or found[1] is None else Roof(found[0], found[1], int(threads[1]))


def speed(kernel: Part) -> tuple[float, float] | None:
    """(FLOPs per byte, GFLOP/s); None where there is no such point on logarithmic axes."""
    if not (kernel.flops > 0 and kernel.bytes_moved > 0 and kernel.latency_ms > 0):
        return None
    return kernel.flops / kernel.bytes_moved, kernel.flops / kernel.latency_ms / 1e6


def roofline(kernels: Sequence[Part], roof: Roof | None) -> Roofline | None:
    """The drawing; None where no kernel has a point on it."""
    points = [(kernel, at) for kernel in kernels if (at := speed(kernel)) is not None]
    if not points:
        return None
    corner = [] if roof is None else [(roof.ridge, roof.gflops)]
    xs = _Axis.over([at[0] for _, at in points] + [x for x, _ in corner], LEFT, WIDTH - RIGHT)
    ys = _Axis.over([at[1] for _, at in points] + [y for _, y in corner], HEIGHT - BOTTOM, TOP)
    most = max(kernel.latency_ms for kernel, _ in points)
    dots = [
        Dot(kernel, xs.at(x), ys.at(y), round(max(SMALLEST, LARGEST * math.sqrt(kernel.latency_ms / most)), 2))
        for kernel, (x, y) in points
    ]
    drawn = {id(kernel) for kernel, _ in points}
    missing = [kernel for kernel in kernels if id(kernel) not in drawn]
    return Roofline(
        dots=tuple(sorted(dots, key=lambda dot: -dot.radius)),
        missing=sum(len(kernel.layers) for kernel in missing),
        missing_ms=sum(kernel.latency_ms for kernel in missing),
        x_ticks=xs.ticks,
        y_ticks=ys.ticks,
        roof=() if roof is None else _line(roof, xs, ys),
    )


@dataclass(frozen=True)
class _Axis:
    """Whole decades, from one position to another."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        """Decades that hold all values, at least two."""
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 0.05)
        return cls(low, max(high, low + 2), start, end)

    def at(self, value: float) -> float:
        """The position of a value."""
        return round(self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start), 2)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """(position, label) of decades, at most about eight."""
        step = math.ceil((self.high - self.low) / 8)
        return tuple((self.at(10.0**power), f"{10.0**power:,.6g}") for power in range(self.low, self.high + 1, step))


def _line(roof: Roof, xs: _Axis, ys: _Axis) -> tuple[tuple[float, float], ...]:
    """From where the slope enters the drawing, to the ridge, to the right edge."""
    left, floor = 10.0**xs.low, 10.0**ys.low
    enters = max(left, floor / roof.bandwidth_gb_s)
    corners = [(enters, roof.reachable(enters)), (roof.ridge, roof.gflops), (10.0**xs.high, roof.gflops)]
    return tuple((xs.at(x), ys.at(y)) for x, y in corners)
