"""Can a measured row be trusted: stable, noisy, shifted or throttled, with the reason in numbers.

    throttled   the machine slowed down while the row was measured and stayed slow (or the kernel counted throttling)
    shifted     the row's processes met different speeds, or none met the machine's steady speed
    noisy       three processes do not agree as asked, or other processes kept the CPU busy
    stable      none of these

A process gives one minimum per row, the level it ran at. Speed is told by the canary, a fixed op run around every burst.
Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from hwbench.lut.latency import minimum_spread

Row = TypeVar("Row", bound=Mapping[str, Any])
SHIFT = 0.03
"""A difference in speed that is more than noise of the canary (its own steps are 3-4 % apart)."""
PRECISION = 0.01
"""Agreement asked of a row's three lowest processes, relative, unless a policy asks for another."""
BUSY_CORES = 0.25
"""Other load worth a word; accounting in ticks of 10 ms keeps idle machines well below."""


@dataclass(frozen=True)
class Process:
    """One process's view of a row, and what the machine did meanwhile; None where it cannot be told."""

    worker: str
    level_ns: float
    canary_ns: float | None = None
    """The best of the canary times around its bursts: its level rests on good moments."""
    other_cores: float | None = None
    throttled: int | None = None


@dataclass(frozen=True)
class Verdict:
    """One word and why."""

    word: str
    reason: str


STABLE = "stable"


def in_doubt(rows: Sequence[Row]) -> list[Row]:
    """Rows of a table that failed, or whose verdict is another than stable; worst first: no latency at all, then by spread."""
    found = [row for row in rows if row["status"] != "ok" or row["verdict"] not in (None, "ok", STABLE)]
    return sorted(found, key=lambda row: (row["status"] == "ok", -_known(row["min_spread"]), row["key"]))


def _known(spread: float | None) -> float:
    return 0.0 if spread is None or spread != spread else spread


COUNT_PRECISION = 0.0005
"""How far counts of instructions of two processes may lie apart: nothing but addresses and allocators moves them."""


def judge_counts(counts: Sequence[float]) -> Verdict:
    """Of the instructions that several processes counted: stable where they agree."""
    apart = (max(counts) - min(counts)) / min(counts)
    text = f"counts of {len(counts)} processes lie {apart:.3%} apart"
    return Verdict("stable" if len(counts) > 1 and apart <= COUNT_PRECISION else "noisy", text)


def steady_canary_ns(canaries_ns: Sequence[float]) -> float:
    """The machine's steady speed: the quarter point of all canary times of a run, NaN without any."""
    return float(np.percentile(canaries_ns, 25)) if len(canaries_ns) else float("nan")


def group_shifts(own_ns: Mapping[tuple[int, str], float], linked: Mapping[tuple[str, int, str], float]) -> dict[str, float]:
    """How much slower each worker's group ran than the group before it, by the items measured in both.

    Args:
        own_ns: (process, item) -> level in the item's own group.
        linked: (worker, process, item) -> level in the group after.
    """
    ratios: dict[str, list[float]] = {}
    for (worker, process, item), value in linked.items():
        if (process, item) in own_ns:
            ratios.setdefault(worker, []).append(value / own_ns[process, item])
    return {worker: float(np.exp(np.mean(np.log(each)))) - 1 for worker, each in ratios.items()}


def judge(processes: Sequence[Process], precision: float, steady_ns: float, shifts: Mapping[str, float]) -> Verdict:
    """The verdict on one row, from its processes in the order they ran."""
    spread = minimum_spread([p.level_ns for p in processes])
    agreement = f"minima of 3 processes within {spread:.1%}" if spread == spread else f"only {len(processes)} of 3 processes"
    agreed = spread <= precision
    reasons = [agreement if agreed else f"{agreement}, asked {precision:.1%}"]
    word = "stable" if agreed else "noisy"
    loads = [p.other_cores for p in processes if p.other_cores is not None]
    if loads and np.mean(loads) >= BUSY_CORES:
        word = "noisy"
        reasons.append(f"other processes kept {np.mean(loads):.1f} cores busy")
    changed = _throttled(processes) or _shifted(processes, agreed, steady_ns, shifts)
    return Verdict(changed.word, "; ".join([changed.reason, *reasons])) if changed else Verdict(word, "; ".join(reasons))


def _throttled(processes: Sequence[Process]) -> Verdict | None:
    """The kernel counted it, or canary and row both slowed down from process to process."""
    counted = sum(p.throttled or 0 for p in processes)
    if counted:
        return Verdict("throttled", f"the CPU throttled {counted} times")
    canary = [p.canary_ns for p in processes if p.canary_ns is not None]
    if len(canary) < 3 or len(canary) < len(processes):
        return None
    falling = all(later > (1 - SHIFT / 3) * earlier for earlier, later in pairwise(canary))
    slower = processes[-1].level_ns > (1 + SHIFT) * processes[0].level_ns
    if falling and slower and canary[-1] > (1 + SHIFT) * canary[0]:
        slowdown = f"{canary[-1] / canary[0] - 1:.1%}"
        return Verdict("throttled", f"the machine slowed down by {slowdown} while it was measured and stayed slow (canary)")
    return None


def _shifted(processes: Sequence[Process], agreed: bool, steady_ns: float, shifts: Mapping[str, float]) -> Verdict | None:
    """The processes behind the minimum were not of one speed, or none was at the machine's steady speed."""
    lowest = sorted(processes, key=lambda p: p.level_ns)[:3]
    canary = [p.canary_ns for p in lowest if p.canary_ns is not None]
    if canary and not agreed and max(canary) > (1 + SHIFT) * min(canary):
        return Verdict("shifted", f"the machine's speed differed by {max(canary) / min(canary) - 1:.1%} behind them (canary)")
    if canary and min(canary) > (1 + SHIFT) * steady_ns:
        return Verdict("shifted", f"all taken {min(canary) / steady_ns - 1:.1%} below the machine's steady speed (canary)")
    jump = max((abs(shifts.get(p.worker, 0.0)) for p in lowest), default=0.0)
    if jump > SHIFT and not agreed:
        return Verdict("shifted", f"a group ran {jump:.1%} apart from the one before it (two items measured in both)")
    return None
