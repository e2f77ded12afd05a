"""How far a data sheet lies outside those that were learnt from, in the ratios that the physics stretches.

An interval is as much wider: what carries over between generations seen says little of one unlike all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hwbench.predictor.gpu.datasheet import UNSTATED_NM, Gpu
from hwbench.predictor.gpu.roofline import OLD_NM

WIDER = 0.5
"""How much wider (relative) an interval gets for every factor of 2 beyond the range."""
MARGIN = 1.1
"""A ratio within that factor of the range is inside."""
Range = Mapping[str, tuple[float, float]]


def ratios(gpu: Gpu, precision: str) -> dict[str, float]:
    """What a data sheet comes down to."""
    cycle = gpu.sms * gpu.clock_mhz * 1e6
    process = (OLD_NM / min(gpu.process_nm or UNSTATED_NM, OLD_NM)) ** 0.9
    return {
        "TFLOP/s per watt, for its process": gpu.peaks[precision] / gpu.tdp_w / process,
        "operations per cycle and SM": gpu.peaks[precision] * 1e12 / cycle,
        "DRAM bytes per cycle and SM": gpu.bandwidth_gb_s * 1e9 / cycle,
        "operations per byte of DRAM": gpu.peaks[precision] * 1e3 / gpu.bandwidth_gb_s,
        "SMs": float(gpu.sms),
    }


def range_of(known: Iterable[Gpu], precision: str) -> Range:
    """The least and the largest of every ratio."""
    found = [ratios(gpu, precision) for gpu in known]
    return {name: (min(each[name] for each in found), max(each[name] for each in found)) for name in found[0]}


def beyond(gpu: Gpu, precision: str, inside: Range) -> dict[str, tuple[float, float, float]]:
    """(value, least, largest) of every ratio that lies outside."""
    own = ratios(gpu, precision)
    return {
        name: (own[name], low, high) for name, (low, high) in inside.items() if not low / MARGIN <= own[name] <= high * MARGIN
    }


def wider(gpu: Gpu, precision: str, inside: Range) -> float:
    """By what factor an interval is wider for what lies outside: the farthest ratio decides."""
    found = beyond(gpu, precision, inside)
    return 1 + WIDER * max((abs(np.log2(v / (low if v < low else high))) for v, low, high in found.values()), default=0.0)


def sentences(gpu: Gpu, precision: str, inside: Range) -> list[str]:
    """What lies outside, one line each."""
    found = [
        f"{name}: {value:.3g}, learnt from {low:.3g} to {high:.3g}"
        for name, (value, low, high) in beyond(gpu, precision, inside).items()
    ]
    if gpu.process_nm is None:
        found.append(f"its device file states no gpu.process_nm; {UNSTATED_NM:g} nm is taken")
    return found
