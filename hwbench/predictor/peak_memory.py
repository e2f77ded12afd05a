"""The most memory a model will hold, told before it is run: of any ONNX file (of a space's architectures: space_memory.py).

    hwbench predict MODEL.onnx --memory

    peak = process + runtime + max(making the session, its weights and what moving them left + running it)

What the model itself asks for is read off the graph that the runtime would run (profiler/memory_plan.py); the process and the
runtime's library are constants. It is the peak that `hwbench measure` reports: of a fresh process that holds nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwbench.core.errors import UsageError
from hwbench.network.spec import Setting
from hwbench.profiler import kernel_detection
from hwbench.profiler.memory_plan import MemoryPlan

PROCESS_BYTES = 36_200_000
"""A worker before its model arrives: Python and numpy (`memory_without_model_bytes` of `hwbench measure`)."""
RUNTIME_BYTES = {"onnxruntime": 29_600_000}
"""What a session takes whose model is next to nothing: the runtime's library and its tables (1.31, Linux on x86)."""
LOW, HIGH = 0.85, 1.3
"""Of measured / predicted, over what a session adds to its process: where nine of ten of the development half lay, the smallest
models aside (reports/peak-memory-2026-11-19)."""


@dataclass(frozen=True)
class PeakMemory:
    """The peak of one model, and what it is made of."""

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    process_bytes: int
    """Python and numpy, without any model."""
    runtime_bytes: int
    """The runtime's library."""
    load_bytes: int
    """What making the session asks for."""
    run_bytes: int
    """What running it asks for, its weights included."""
    plan: MemoryPlan

    @classmethod
    def of(cls, plan: MemoryPlan, runtime: str) -> PeakMemory:
        """The peak of a model with these needs."""
        library = library_bytes(runtime)
        own = library + plan.peak_bytes
        return cls(
            peak_bytes=PROCESS_BYTES + own,
            low_bytes=PROCESS_BYTES + round(LOW * own),
            high_bytes=PROCESS_BYTES + round(HIGH * own),
            process_bytes=PROCESS_BYTES,
            runtime_bytes=library,
            load_bytes=plan.load_bytes,
            run_bytes=plan.held_bytes + plan.run_bytes,
            plan=plan,
        )

    @classmethod
    def where_known(cls, plan: MemoryPlan, runtime: str) -> PeakMemory | None:
        """The same; None where the runtime does not tell what it makes of a model."""
        return cls.of(plan, runtime) if runtime in RUNTIME_BYTES else None

    @property
    def when(self) -> str:
        """What the peak is reached in."""
        return "making the session" if self.load_bytes >= self.run_bytes else "running it"


def library_bytes(runtime: str) -> int:
    """What the runtime itself takes.

    Raises:
        UsageError: it does not tell what it makes of a model.
    """
    if runtime not in RUNTIME_BYTES:
        known = ", ".join(RUNTIME_BYTES)
        raise UsageError(f"The memory of {runtime} is not known before a model runs; known: {known}. hwbench measure tells it.")
    return RUNTIME_BYTES[runtime]


def peak_memory(
    model: str | Path,
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    shapes: Mapping[str, Sequence[int]] | None = None,
    fills: Mapping[str, float] | None = None,
) -> PeakMemory:
    """The most memory that a process will hold which runs an ONNX file; nothing of the device need be known.

    Args:
        model: ONNX file.
        runtime: Inference runtime.
        setting: Threads.
        shapes: Input name -> shape, for inputs the file leaves open.
        fills: Input name -> the number it is filled with where data decide what is run.
    """
    library_bytes(runtime)
    return PeakMemory.of(kernel_detection.detect(model, runtime, setting, shapes, fills).memory, runtime)
