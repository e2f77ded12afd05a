"""Which kernels of a model gain in another number format or release of a runtime, which lose, and why.

    hwbench measure MODEL.onnx --dtype fp32 --dtype int8
    hwbench measure MODEL.onnx --runtime onnxruntime==1.20.0 --runtime onnxruntime==1.31.1

The runtime's own profiler times every kernel of both forms, in three fresh processes of each, in turn: they differ where every
process of one lies beyond every process of the other. Converters and releases rename, split and fuse nodes, so kernels are held
against each other by what they compute (a QLinearConv is a Conv) and the shape of their output. Times are for shares: the
profiler tells whole microseconds and slows a model by a tenth; what the model takes is measured beside.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hwbench.core.progress import step
from hwbench.device.transport.base import WorkerLost
from hwbench.profiler import host
from hwbench.profiler.plan import Item, Plan

PROCESSES = 3
CONVERSION, CONVERSIONS = "conversions", ("QuantizeLinear", "DequantizeLinear", "Cast")
SAME_WITHIN = 0.05
INTEGERS, HALF = {"int8", "uint8"}, {"float16"}
ORIGINS = {
    "MatMulIntegerToFloat": "MatMul", "DynamicQuantizeMatMul": "MatMul", "MatMulInteger": "MatMul", "Gemm": "MatMul",
    "ConvInteger": "Conv", "FusedMatMul": "MatMul", "FusedGemm": "MatMul", "FusedConv": "Conv", "QAttention": "Attention",
    "BiasGelu": "Gelu", "FastGelu": "Gelu", "QuickGelu": "Gelu", "SkipLayerNormalization": "LayerNormalization",
    "DynamicQuantizeLSTM": "LSTM",
}  # fmt: skip
"""Kernel -> the op it computes, where its name is not that with QLinear before."""


@dataclass(frozen=True)
class TimedKernel:
    """One kernel under the profiler."""

    type: str
    reads: tuple[str, ...]
    """Element types of its inputs."""
    shape: tuple[int, ...]
    """Of its first output."""
    ms: float

    @property
    def origin(self) -> str:
        """What it computes, whatever the format."""
        if self.type in CONVERSIONS:
            return CONVERSION
        plain = self.type.removeprefix("QLinear")
        return ORIGINS.get(plain, plain)

    @property
    def format(self) -> str:
        """What it computes in."""
        read = set(self.reads)
        return "int8" if read & INTEGERS else "fp16" if read & HALF else "fp32"


Runs = Sequence[Sequence[TimedKernel]]
"""The kernels of one run, process by process."""


def timed(models: Sequence[tuple[Item, Plan]]) -> list[list[list[TimedKernel]]]:
    """Every kernel of every model, process by process; nothing of a model whose runtime does not tell them."""
    found: list[list[list[TimedKernel]]] = [[] for _ in models]
    silent: set[int] = set()
    with step("timing kernels") as tick:
        for process in range(PROCESSES):
            for at, (item, plan) in enumerate(models):
                tick(process * len(models) + at, PROCESSES * len(models))
                kernels = [] if at in silent else _one_process(item, plan)
                found[at] += [kernels] if kernels else []
                silent |= set() if kernels else {at}
    return [[] if at in silent else each for at, each in enumerate(found)]


def _one_process(item: Item, plan: Plan) -> list[TimedKernel]:
    """Of one run; nothing where the runtime does not tell, or its worker is lost: the latency beside needs none of it."""
    try:
        worker = host.WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.transport)
    except WorkerLost:
        return []
    try:
        answer = host.load(worker, item, plan.policy, ask="kernels")
    except WorkerLost:
        return []
    finally:
        item.release()
        worker.close(kill=True)
    return [
        TimedKernel(each["type"], tuple(each["reads"]), tuple(each["shape"]), each["ms"]) for each in answer.get("kernels", [])
    ]


def against(first: Runs, other: Runs) -> list[dict[str, Any]]:
    """What each kind of kernel takes in both forms, and why they differ; what differs most comes first."""
    by_place = [[_by_place(kernels) for kernels in runs] for runs in (first, other)]
    places = {place for runs in by_place for run in runs for place in run}
    rows = [_row(place, *([run.get(place, []) for run in runs] for runs in by_place)) for place in places]
    return sorted(rows, key=lambda row: (-abs(row["other_ms"] - row["first_ms"]), row["kernel"], row["shape"]))


Place = tuple[str, tuple[int, ...]]


def _by_place(kernels: Sequence[TimedKernel]) -> dict[Place, list[TimedKernel]]:
    found: dict[Place, list[TimedKernel]] = {}
    for kernel in kernels:
        sides = itertools.dropwhile(lambda side: side == 1, kernel.shape)  # converters take leading ones away, and add them
        shape = () if kernel.origin == CONVERSION else tuple(sides)
        found.setdefault((kernel.origin, shape), []).append(kernel)
    return found


def _row(place: Place, first: Runs, other: Runs) -> dict[str, Any]:
    times = [[sum(kernel.ms for kernel in kernels) for kernels in runs] for runs in (first, other)]
    first_ms, other_ms = (statistics.median(each) for each in times)
    change = other_ms - first_ms
    apart = max(times[0]) < min(times[1]) or max(times[1]) < min(times[0])
    near = not apart or abs(change) <= SAME_WITHIN * max(first_ms, other_ms)
    before, after = first[0], other[0]
    return {
        "kernel": place[0],
        "shape": "x".join(map(str, place[1])),
        "first": len(before),
        "other": len(after),
        "first_ms": first_ms,
        "other_ms": other_ms,
        "answer": "same" if near else "gains" if change < 0 else "loses",
        "why": _why(place[0], before, after, near, change),
    }


def _why(origin: str, before: Sequence[TimedKernel], after: Sequence[TimedKernel], near: bool, change: float) -> str:
    """In a few words, from what the runtime executed."""
    types = ", ".join(sorted({kernel.type for kernel in after}))
    if origin == CONVERSION:
        return f"only changes the format: {len(after)} where there were {len(before)}"
    if not after:
        return "is no kernel of its own any more: fused into another, or left out"
    if not before:
        return f"was fused into another before, and stands alone now ({types})"
    formats = {kernel.format for kernel in after}
    changed = formats - {kernel.format for kernel in before}
    if not changed:
        were, are = ("/".join(sorted({kernel.type for kernel in kernels})) for kernels in (before, after))
        counts = f", {len(after)} where there were {len(before)}" if len(before) != len(after) else ""
        kernel = f"the same kernel ({are})" if were == are else f"{are} in place of {were}"
        return f"stays in {'/'.join(sorted(formats))}, {kernel}{counts}"
    wide = sum(kernel.format not in changed for kernel in after)
    part = f", {wide} of {len(after)} are not" if wide else ""
    said = f"computed in {'/'.join(sorted(changed))} ({types}{part})"
    if near or change < 0:
        return said
    return f"{said}, and scaling every value costs more than narrower numbers save"
