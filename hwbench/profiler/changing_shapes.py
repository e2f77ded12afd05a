"""One session that meets other shapes from run to run, as a service does whose requests differ in length.

    hwbench measure MODEL.onnx --scenario changing-shapes --sweep sequence=8,32,128,512

The session is made once, with no side fixed. It meets every point of the sweep equally often, in an order drawn by the seed;
the first run of each shape is told apart, since the runtime plans its memory then. Afterwards each shape is run a few times in
a row: what staying at it would take. Fresh processes repeat the same order.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick
from hwbench.device.transport.base import REFUSED, WorkerLost
from hwbench.profiler import host
from hwbench.profiler.model_files import file_sha256
from hwbench.profiler.plan import Item, Plan
from hwbench.profiler.variant import Variant

TIMES, STAYING = 10, 5
"""Runs of every shape in changing order, and in a row."""
PROCESSES = 3


@dataclass(frozen=True)
class Changed:
    """What one session took that met other shapes from run to run."""

    load_ms: float
    first_ms: float
    """The first run of all, before those that are told one by one."""
    times_ns: tuple[float, ...]
    memory_bytes: int
    memory_before_bytes: int
    environment: Mapping[str, Any]


def change(item: Item, order: Sequence[Mapping[str, Sequence[int]]], plan: Plan) -> Changed:
    """Loads one item alone in a fresh worker, then runs it once at every one of these shapes.

    Raises:
        WorkerLost: the worker crashed or hung, or the runtime refused.
    """
    worker = host.WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.transport)
    try:
        loaded = host.load(worker, item, plan.policy)
        shapes = [{name: list(shape) for name, shape in each.items()} for each in order]
        answer = worker.ask({"ask": "change", "item": item.key, "order": shapes}) if loaded["status"] == "ok" else loaded
        if answer["status"] != "ok":
            raise WorkerLost(REFUSED, answer["reason"])
        return Changed(
            loaded["load_ms"], loaded["first_ms"], tuple(answer["times_ns"]), answer["memory_bytes"],
            loaded["memory_before_bytes"], worker.environment,
        )  # fmt: skip
    finally:
        item.release()
        worker.close(kill=True)


def drawn(points: int, seed: int) -> list[int]:
    """Every point equally often, shuffled."""
    order = [point for point in range(points) for _ in range(TIMES)]
    random.Random(seed).shuffle(order)
    return order


def measure(checked: Sequence[tuple[Variant, Item]], plan: Plan, tick: Tick) -> list[dict[str, Any]]:
    """A document per file, its points under `by_shape`.

    Raises:
        MeasurementError: the runtime cannot run a session at several shapes, or not this model.
    """
    files: dict[Path, list[tuple[Variant, Item]]] = {}
    for variant, item in checked:
        files.setdefault(variant.path, []).append((variant, item))
    documents = []
    for at, points in enumerate(files.values()):
        order = drawn(len(points), plan.policy.seed)
        runs = [*order, *(point for point in range(len(points)) for _ in range(STAYING))]
        seen = []
        for process in range(PROCESSES):
            seen.append(_one_process(points, runs, plan))
            tick(at * PROCESSES + process + 1, len(files) * PROCESSES)
        documents.append(_document([variant for variant, _ in points], order, seen, plan))
    return documents


def _one_process(points: Sequence[tuple[Variant, Item]], runs: Sequence[int], plan: Plan) -> Changed:
    item = replace(points[runs[0]][1], release=lambda: None)
    short = replace(plan, policy=replace(plan.policy, warmup_ms=1.0, warmup_limit_ms=1.0))
    try:
        return change(item, [points[point][1].shapes for point in runs], short)
    except WorkerLost as lost:
        raise MeasurementError(f"{points[0][0].path} could not be measured: {lost.status}, {lost}.") from None


def _document(variants: Sequence[Variant], order: Sequence[int], seen: Sequence[Changed], plan: Plan) -> dict[str, Any]:
    changing = [each.times_ns[: len(order)] for each in seen]
    staying = [each.times_ns[len(order) :] for each in seen]
    rows = [_row(variant, i, order, seen, changing, staying) for i, variant in enumerate(variants)]
    every_ms = np.concatenate(changing) / 1e6
    first = variants[0]
    named = {name: value for name, value in first.named().items() if name not in ("point", "shapes", "batch")}
    return {
        **named,
        "sha256": file_sha256(first.path),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": plan.policy.seed,
        "by_shape": rows,
        "latency_median_ms": float(np.median(every_ms)),
        "latency_p90_ms": float(np.quantile(every_ms, 0.9)),
        "latency_p99_ms": float(np.quantile(every_ms, 0.99)),
        "runs_per_s": float(1e3 / every_ms.mean()),
        "session_ms": statistics.median(each.load_ms for each in seen),
        "peak_memory_bytes": max(each.memory_bytes for each in seen),
        "memory_without_model_bytes": max(each.memory_before_bytes for each in seen),
        "processes": len(seen),
        "runs": len(order),
        "environment": dict(seen[0].environment),
        "notes": [],
        "raw": [{"order": list(order), "times_ns": list(each.times_ns)} for each in seen],
    }


def _row(
    variant: Variant,
    point: int,
    order: Sequence[int],
    seen: Sequence[Changed],
    changing: Sequence[Sequence[float]],
    staying: Sequence[Sequence[float]],
) -> dict[str, Any]:
    """One shape: its first run, later runs between others, and runs in a row."""
    places = [i for i, each in enumerate(order) if each == point]
    # The very first run of all is that of loading.
    firsts = [each.first_ms if places[0] == 0 else times[places[0]] / 1e6 for each, times in zip(seen, changing, strict=True)]
    later = [times[i] / 1e6 for times in changing for i in places[1:]]
    row = [times[point * STAYING + i] / 1e6 for times in staying for i in range(1, STAYING)]
    return {
        "point": dict(variant.point),
        "shapes": {name: list(shape) for name, shape in variant.shapes.items()},
        "first_run_ms": statistics.median(firsts),
        "latency_median_ms": statistics.median(later),
        "latency_p90_ms": float(np.quantile(later, 0.9)),
        "staying_median_ms": statistics.median(row),
        "runs": len(later),
    }
