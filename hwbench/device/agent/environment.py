"""The machine at measuring time, and which of its keys must agree before results may be mixed.

Standard library only: the measuring worker collects it on the device itself, on Python >= 3.9.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHECKED = (
    "machine", "cpu_model", "cpu_signature", "isa", "cores", "runtime", "runtime_version", "executes_on", "emulator",
)  # fmt: skip
"""Rows that differ in one of these were measured on another machine or runtime: never mixed."""
UNSAID = {"executes_on": "cpu"}
"""What environments stored before a key existed were."""

ISA_FLAGS = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
"""CPU flags that decide which kernels a runtime picks."""


@dataclass(frozen=True)
class Environment:
    """Every known fact of the machine, as plain JSON values."""

    values: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """Identity in journals and footers."""
        text = json.dumps(dict(self.values), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other: Environment) -> list[tuple[str, Any, Any]]:
        """(key, mine, theirs) for every checked key that disagrees."""
        unsaid = {key: UNSAID.get(key) for key in CHECKED}
        pairs = [(key, {**unsaid, **self.values}[key], {**unsaid, **other.values}[key]) for key in CHECKED]
        return [(key, mine, theirs) for key, mine, theirs in pairs if mine != theirs]


def collect(runtime: str, runtime_version: str, executes_on: str = "cpu") -> Environment:
    """This machine, now, under that runtime, on what really computes there."""
    cpu = cpu_facts()
    return Environment(
        {
            "machine": platform.machine(),
            "cpu_model": cpu["model"],
            "cpu_signature": cpu["signature"],
            "isa": cpu["isa"],
            "cores": os.cpu_count() or 1,
            "runtime": runtime,
            "runtime_version": runtime_version,
            "executes_on": executes_on,
            "system": platform.system(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        }
    )


def cpu_facts(path: str = "/proc/cpuinfo") -> dict[str, Any]:
    """Model name, family-model-stepping (or ARM implementer-part) and the ISA extensions that matter."""
    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123
            lines = [line.partition(":") for line in stream]
    except OSError:
        lines = []
    first: dict[str, str] = {}
    for name, _, value in lines:
        first.setdefault(name.strip(), value.strip())
    flags = set((first.get("flags") or first.get("Features") or "").split())
    if "cpu family" in first:
        signature = "-".join(first.get(key, "?") for key in ("cpu family", "model", "stepping"))
    else:
        signature = "-".join(first.get(key, "?") for key in ("CPU implementer", "CPU part", "CPU revision"))
    model = first.get("model name") or first.get("Model") or platform.processor() or platform.machine()
    return {"model": " ".join(model.split()), "signature": signature, "isa": [f for f in ISA_FLAGS if f in flags]}
