"""Which kernels of a model gain in another number format, which lose, and why.

    hwbench measure MODEL.onnx --dtype fp32 --dtype int8

The runtime's own profiler times every kernel of both forms. The converter renames and splits nodes, so kernels are held against
each other by what they compute (a QLinearConv is a Conv) and the shape of their output. Times are for shares: the profiler
tells whole microseconds and slows a model by a tenth; what the model takes is measured beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hwbench.core import registry
from hwbench.profiler.plan import Item

RUNS = 12
"""Under the profiler; the shortest time of each kernel counts."""
CONVERSION, CONVERSIONS = "conversions", ("QuantizeLinear", "DequantizeLinear", "Cast")
SAME_WITHIN = 0.05
INTEGERS, HALF = {"int8", "uint8"}, {"float16"}
ORIGINS = {
    "MatMulIntegerToFloat": "MatMul", "DynamicQuantizeMatMul": "MatMul", "MatMulInteger": "MatMul", "QGemm": "Gemm",
    "ConvInteger": "Conv", "FusedMatMul": "MatMul", "FusedGemm": "Gemm", "FusedConv": "Conv", "QAttention": "Attention",
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


def timed(item: Item, runtime: str) -> list[TimedKernel]:
    """Every kernel of one run; nothing where the runtime does not tell them."""
    engine = registry.get("runtime", runtime)
    if not hasattr(engine, "timed"):
        return []
    path, _ = item.model()
    told = engine.timed(path, item.setting, item.high, item.shapes, RUNS)
    return [TimedKernel(kind, reads, tuple(outputs[0][0]) if outputs else (), ms) for _, kind, reads, outputs, ms in told]


def against(first: Sequence[TimedKernel], other: Sequence[TimedKernel]) -> list[dict[str, Any]]:
    """What each kind of kernel takes in both forms, and why they differ; what differs most comes first."""
    places = {_place(kernel) for kernel in (*first, *other)}
    rows = [_row(place, *([k for k in kernels if _place(k) == place] for kernels in (first, other))) for place in places]
    return sorted(rows, key=lambda row: (-abs(row["other_ms"] - row["first_ms"]), row["kernel"], row["shape"]))


def _place(kernel: TimedKernel) -> tuple[str, tuple[int, ...]]:
    return kernel.origin, () if kernel.origin == CONVERSION else kernel.shape


def _row(place: tuple[str, tuple[int, ...]], before: Sequence[TimedKernel], after: Sequence[TimedKernel]) -> dict[str, Any]:
    first_ms, other_ms = (sum(kernel.ms for kernel in kernels) for kernels in (before, after))
    change = other_ms - first_ms
    near = abs(change) <= SAME_WITHIN * max(first_ms, other_ms)
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
        fused = {kernel.type for kernel in before} - {kernel.type for kernel in after}
        if fused and not near:
            return f"stays in {'/'.join(sorted(formats))}, without the fusion it had ({', '.join(sorted(fused))})"
        return f"stays in {'/'.join(sorted(formats))}" + ("" if near else "; what lies around it changed")
    wide = sum(kernel.format not in changed for kernel in after)
    part = f", {wide} of {len(after)} are not" if wide else ""
    said = f"computed in {'/'.join(sorted(changed))} ({types}{part})"
    if near or change < 0:
        return said
    return f"{said}, and scaling every value costs more than narrower numbers save"
