"""Statistics as pure functions. Latencies in, numbers with a stated meaning out; nothing is stored here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.errors import UsageError

Array = np.ndarray


@dataclass(frozen=True)
class Latency:
    """What the raw samples of one row or network say."""

    min_ms: float
    """Smallest sample over all processes: what the machine can do; repeats well."""
    min_spread: float
    """Doubt of the minimum: (third lowest - lowest) / lowest of the per-process minima; NaN below 3 processes."""
    median_ms: float
    """Median over processes of the processes' medians: what a user feels; moves with the machine's load."""
    median_spread: float
    """(highest - lowest) / median of the processes' medians."""
    processes: int
    samples: int


def summarise(samples_ns: Mapping[str, Sequence[float]]) -> Latency:
    """Estimates from raw samples, grouped by the worker process that took them."""
    if not samples_ns or any(len(s) == 0 for s in samples_ns.values()):
        raise UsageError("No samples: a latency needs at least one per process.")
    minima = np.sort([min(s) for s in samples_ns.values()])
    medians = np.array([float(np.median(s)) for s in samples_ns.values()])
    middle = float(np.median(medians))
    return Latency(
        min_ms=float(minima[0]) / 1e6,
        min_spread=minimum_spread(minima),
        median_ms=middle / 1e6,
        median_spread=float((medians.max() - medians.min()) / middle),
        processes=len(medians),
        samples=sum(len(s) for s in samples_ns.values()),
    )


def minimum_spread(minima: Sequence[float] | Array) -> float:
    """How far the three lowest per-process minima lie apart, relative to the lowest; NaN below three."""
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


def relative_errors(predicted: Array, measured: Array) -> Array:
    """(predicted - measured) / measured, signed."""
    measured = np.asarray(measured, float)
    return np.asarray((np.asarray(predicted, float) - measured) / measured)


@dataclass(frozen=True)
class Accuracy:
    """How good predictions are, on networks the model was not fitted on."""

    n: int
    mean_abs_error: float
    bias: float
    p95_abs_error: float
    max_abs_error: float
    within_5: float
    """Share of networks within 5 %."""
    kendall_tau: float


def accuracy(predicted: Array, measured: Array) -> Accuracy:
    """Relative errors and rank agreement of predictions."""
    signed = relative_errors(predicted, measured)
    absolute = np.abs(signed)
    return Accuracy(
        n=len(signed),
        mean_abs_error=float(absolute.mean()),
        bias=float(signed.mean()),
        p95_abs_error=float(np.quantile(absolute, 0.95)),
        max_abs_error=float(absolute.max()),
        within_5=float((absolute <= 0.05).mean()),
        kendall_tau=kendall_tau(predicted, measured),
    )


def kendall_tau(a: Array, b: Array) -> float:
    """Rank agreement (tau-b); NaN where either side is constant or has fewer than two values."""
    from scipy.stats import kendalltau

    a, b = np.asarray(a, float), np.asarray(b, float)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(kendalltau(a, b).statistic)


def pareto_front(gain: Array, cost: Array) -> Array:
    """Indices of points no other beats in both (more gain, less cost), by rising cost; one per distinct point."""
    order = np.lexsort((-np.asarray(gain), np.asarray(cost)))
    front: list[int] = []
    best = -np.inf
    for i in order:
        if gain[i] > best:
            front.append(int(i))
            best = gain[i]
    return np.array(front, dtype=int)
