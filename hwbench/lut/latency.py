"""What raw readings say: level, minimum, median with its interval. Nanoseconds in, milliseconds with a stated meaning out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.stats import Array

BOOTSTRAPS = 2000
"""Resamples behind the interval of a median."""


WINDOW, ENOUGH = 0.02, 0.6
"""How wide a level is, relative; how full a window must be, against the fullest, to count as one."""
LONG_NS = 5e6
"""Readings from this length on cannot be lucky as a whole, since fast spells last under a millisecond: their lowest range is
the level, however few there are of it. (64 networks of 20 to 400 ms on a busy machine: the error of a calibrated sum on 32
held-out ones fell from 3.3 to 2.3 %.)"""


def level(readings: Sequence[float] | Array) -> float:
    """The level one process ran at: the lowest 2 % wide range that holds nearly as many readings as the fullest does.

    Shared machines jump between speeds. The rare fast ones (1 % of the time, under a millisecond each) make the
    smallest reading a matter of luck, the slow ones the median; the lowest speed that is met often is met every time.
    Of long readings (ns) the lowest range counts.
    """
    ordered = np.sort(np.asarray(readings, float))
    ends = np.searchsorted(ordered, ordered * (1 + WINDOW), side="right")
    counts = ends - np.arange(len(ordered))
    start = 0
    if ordered[0] < LONG_NS:
        first = int(np.argmax(counts >= ENOUGH * counts.max()))
        start = first + int(np.argmax(counts[first : ends[first]]))
    return float(np.median(ordered[start : ends[start]]))


@dataclass(frozen=True)
class Latency:
    """What the raw readings of one row or network say."""

    min_ms: float
    """Smallest level over all processes: what the machine does when nobody disturbs it; repeats well."""
    min_spread: float
    """Doubt of the minimum: (third lowest - lowest) / lowest of the processes' levels; NaN below 3 processes."""
    median_ms: float
    """Median over processes of the medians of their readings: what a user feels; moves with the machine's load."""
    median_low_ms: float
    median_high_ms: float
    """95 % bootstrap interval of the median over processes; NaN below 3 processes."""
    median_spread: float
    """(highest - lowest) / median of the processes' medians."""
    fastest_ms: float
    """Smallest single reading: a lucky moment, kept to be seen."""
    p90_ms: float
    p99_ms: float
    """Over all readings."""
    mean_ms: float
    """Over all readings: what throughput follows from."""
    processes: int
    samples: int
    readings: int


def summarise(
    bursts_ns: Mapping[str, Sequence[Sequence[float]]], extra_ns: Mapping[str, Sequence[float]] | None = None
) -> Latency:
    """Estimates from raw readings, by the worker process and the burst that took them.

    `extra_ns` are readings of moments chosen to be undisturbed, by process: for the minimum and the fastest only.
    """
    if not bursts_ns or any(len(bursts) == 0 or any(len(b) == 0 for b in bursts) for bursts in bursts_ns.values()):
        raise UsageError("No readings: a latency needs at least one per burst and process.")
    readings = [np.concatenate([np.asarray(b, float) for b in bursts]) for bursts in bursts_ns.values()]
    chosen = extra_ns or {}
    undisturbed = [np.append(r, chosen.get(w, ())) for w, r in zip(bursts_ns, readings, strict=True)]
    minima = np.array([level(r) for r in undisturbed])
    medians = np.array([float(np.median(r)) for r in readings])
    middle = float(np.median(medians))
    low, high = median_interval(medians)
    everything = np.concatenate(readings)
    return Latency(
        min_ms=float(minima.min()) / 1e6,
        min_spread=minimum_spread(minima),
        median_ms=middle / 1e6,
        median_low_ms=low / 1e6,
        median_high_ms=high / 1e6,
        median_spread=float((medians.max() - medians.min()) / middle),
        fastest_ms=min(float(r.min()) for r in undisturbed) / 1e6,
        p90_ms=float(np.percentile(everything, 90)) / 1e6,
        p99_ms=float(np.percentile(everything, 99)) / 1e6,
        mean_ms=float(everything.mean()) / 1e6,
        processes=len(medians),
        samples=sum(len(bursts) for bursts in bursts_ns.values()),
        readings=len(everything),
    )


def median_interval(medians: Array, confidence: float = 0.95) -> tuple[float, float]:
    """Bootstrap interval of the median of process medians; seeded, so that a fold gives the same table every time."""
    if len(medians) < 3:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(0).choice(medians, (BOOTSTRAPS, len(medians)))
    low, high = np.quantile(np.median(drawn, axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def minimum_spread(minima: Sequence[float] | Array) -> float:
    """How far the three lowest processes lie apart, relative to the lowest; NaN below three."""
    lowest = np.sort(np.asarray(minima, float))[:3]
    return float((lowest[-1] - lowest[0]) / lowest[0]) if len(lowest) == 3 else float("nan")


def noise(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How well measured rows repeat; NaN where no row had the three processes a spread needs."""

    def known(column: str) -> list[float]:
        return [row[column] for row in rows if row[column] is not None and row[column] == row[column]] or [float("nan")]

    return {
        "min_spread_median": float(np.median(known("min_spread"))),
        "min_spread_max": float(np.max(known("min_spread"))),
        "median_spread_median": float(np.median(known("median_spread"))),
    }
