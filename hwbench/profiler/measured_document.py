"""What `measure` says of one model: every number, what it rests on, and its raw readings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from hwbench.lut import fold, verdict
from hwbench.lut import latency as hwbench_latency
from hwbench.lut.sample import Sample, StartUp
from hwbench.profiler.model_files import file_sha256
from hwbench.profiler.variant import Variant, batch_of

FAILED = "failed"
"""In a document that says why nothing was measured; it has no latencies."""
OFF = "outputs_off"


def measured(
    variant: Variant,
    starts: Sequence[StartUp],
    notes: Sequence[str],
    taken: Sequence[Sample],
    canaries_ns: Sequence[float],
    precision: float,
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that was measured of one model.

    Args:
        variant: What it is and how it ran.
        starts: Its start-ups.
        notes: What else is to be said of it.
        taken: Its bursts.
        canaries_ns: Of its runtime, in all bursts.
        precision: Agreement asked of processes.
        environment: Where it ran.
    """
    setting, batch = variant.target.setting, batch_of(variant.shapes)
    seen = fold.measurement(taken[0].key, setting, taken)
    latency = hwbench_latency.summarise(seen.bursts_ns, seen.extra_ns)
    steady_ns = verdict.steady_canary_ns(list(canaries_ns))
    seen_by = fold.processes(taken)
    judged = verdict.judge(seen_by, precision, steady_ns, {})
    empty = [s.empty_ns for s in taken if s.empty_ns is not None]
    off = [start.outputs_off for start in starts if start.outputs_off is not None]
    return {
        **variant.named(),
        "sha256": file_sha256(variant.path),
        "measured_at": now(),
        **_latencies(latency),
        "throughput_per_s": 1e3 * batch / latency.mean_ms if setting.scenario == "back-to-back" else None,
        "runs_per_reading": max(s.inner for s in taken),
        **_starting(starts),
        **({OFF: max(off)} if off else {}),
        "call_overhead_ms": min(empty) / 1e6 if empty else None,
        "canary_ns": steady_ns if steady_ns == steady_ns else None,
        "verdict": judged.word,
        "reason": judged.reason,
        "notes": [*notes, *dict.fromkeys(start.computes for start in starts if start.computes)],
        "processes": latency.processes,
        "samples": latency.samples,
        "readings": latency.readings,
        "levels_ms": [process.level_ns / 1e6 for process in seen_by],
        "environment": dict(environment),
        "raw": [asdict(s) for s in taken],
        "start_ups": [asdict(start) for start in starts],
    }


def refused(variant: Variant, why: str) -> dict[str, Any]:
    """The row of a runtime that could not be installed, crashed or refused."""
    return {**variant.named(), FAILED: why, "measured_at": now()}


def now() -> str:
    """As documents state it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _latencies(latency: hwbench_latency.Latency) -> dict[str, float]:
    return {
        "latency_min_ms": latency.min_ms,
        "min_spread": latency.min_spread,
        "latency_median_ms": latency.median_ms,
        "median_low_ms": latency.median_low_ms,
        "median_high_ms": latency.median_high_ms,
        "median_spread": latency.median_spread,
        "latency_p90_ms": latency.p90_ms,
        "latency_p99_ms": latency.p99_ms,
        "latency_fastest_ms": latency.fastest_ms,
    }


def _starting(starts: Sequence[StartUp]) -> dict[str, float]:
    return {
        "session_ms": statistics.median(s.load_ms for s in starts),
        "first_run_ms": statistics.median(s.first_ms for s in starts),
        "peak_memory_bytes": max(int(s.memory_bytes) for s in starts),
        "memory_without_model_bytes": max(int(s.memory_before_bytes) for s in starts),
    }
