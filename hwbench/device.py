"""What a device is: devices/<name>.toml, and how to write one for this machine.

    hwbench device detect        measures peaks with two short kernels and writes the file
    hwbench device list | show

A GPU's file (kind = "gpu", reach = "none") states its data sheet in a [gpu] section; hwbench/gpu.py reads it.

Bandwidth is read + written bytes of a copy between arrays larger than the caches; GFLOP/s is that of a
single-precision matrix product. Both are what numpy reaches, so lower bounds of the hardware's peaks.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hwbench import environment, registry
from hwbench.errors import DataError, UnknownName, UsageError
from hwbench.workspace import Workspace, atomic_write

VERSION = 1
REACHES = ("local", "none")


@dataclass(frozen=True)
class Device:
    """One target, as its file states it."""

    name: str
    kind: str
    """x86, arm or gpu."""
    reach: str
    """How to run on it: local; none where only its data sheet is known."""
    cpu_model: str
    """A GPU's own model for a GPU, which has no signature, ISA, measured peaks or cores of its own."""
    cpu_signature: str
    isa: tuple[str, ...]
    cores: int
    memory_bytes: int
    caches_bytes: dict[str, int]
    peaks: dict[str, float]
    """gflops_fp32_<n>_threads, bandwidth_gb_s_<n>_threads."""
    detected_on: str
    path: Path
    gpu: dict[str, Any] = field(default_factory=dict)
    """The data sheet of a GPU; empty for everything else."""

    @property
    def is_local(self) -> bool:
        """Whether this is the machine we run on."""
        return self.name == local_name()


def local_name() -> str:
    """The name this machine's device file has: CPU model, signature, cores."""
    cpu = environment.cpu_facts()
    model = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\d+-core", " ", cpu["model"].lower())
    words = re.findall(r"[a-z0-9]+", model)
    return "-".join([*words, cpu["signature"].replace("?", "x").lower(), f"{os.cpu_count() or 1}c"])


def detect(workspace: str | Path = ".") -> Device:
    """Writes devices/<name>.toml for this machine and returns it."""
    import psutil
    import tomli_w

    place = Workspace.at(workspace)
    cpu = environment.cpu_facts()
    cores = os.cpu_count() or 1
    caches = _caches_bytes()
    peaks: dict[str, float] = {}
    for threads in sorted({1, cores}):
        peaks.update(_measure_peaks(threads, caches))
    document = {
        "schema": VERSION,
        "name": local_name(),
        "kind": "x86" if platform.machine() in ("x86_64", "AMD64") else "arm",
        "reach": "local",
        "detected_on": datetime.now(UTC).date().isoformat(),
        "cpu": {"model": cpu["model"], "signature": cpu["signature"], "isa": cpu["isa"], "cores": cores},
        "memory": {"total_bytes": psutil.virtual_memory().total, "caches_bytes": caches},
        "peaks": peaks,
    }
    path = place.path("devices", f"{local_name()}.toml")
    atomic_write(path, tomli_w.dumps(document))
    return read(path)


def get(name: str, workspace: str | Path = ".") -> Device:
    """The device of that name; `local` is this machine.

    Raises:
        UnknownName: no file; the message names the nearest ones.
    """
    place = Workspace.at(workspace)
    wanted = local_name() if name == "local" else name
    path = place.find("devices", f"{wanted}.toml")
    if path is None:
        if name == "local" or wanted == local_name():
            raise UnknownName(f"This machine ({wanted}) has no device file in {place.root}. Run: hwbench device detect")
        raise UnknownName(registry.unknown("device", name, ["local", *(p.stem for p in files(place))]))
    return read(path)


def resolve(name: str, workspace: str | Path = ".") -> str:
    """The device's own name; `local` becomes this machine's, and any other must have a file."""
    return local_name() if name in ("local", local_name()) else get(name, workspace).name


def files(workspace: Workspace) -> list[Path]:
    """Every known device file."""
    return workspace.each("devices", pattern="*.toml")


def read(path: Path) -> Device:
    """A device from its file.

    Raises:
        DataError: not TOML, a field is missing or of the wrong kind, or a newer version; it is named.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"Device file {path} is not readable TOML ({error}); mend it or run: hwbench device detect") from None
    if _field(document, path, "schema", int) > VERSION:
        raise DataError(f"Device file {path} has schema {document['schema']}, this hwbench knows {VERSION}: update hwbench.")
    reach = _field(document, path, "reach", str)
    if reach not in REACHES:
        raise DataError(f"Device file {path}: reach '{reach}' is unknown; available: {', '.join(REACHES)}.")
    kind = _field(document, path, "kind", str)
    if kind == "gpu":
        return _read_gpu(document, path, reach)
    return Device(
        name=_field(document, path, "name", str),
        kind=kind,
        reach=reach,
        cpu_model=_field(document, path, "cpu.model", str),
        cpu_signature=_field(document, path, "cpu.signature", str),
        isa=tuple(_field(document, path, "cpu.isa", list)),
        cores=_field(document, path, "cpu.cores", int),
        memory_bytes=_field(document, path, "memory.total_bytes", int),
        caches_bytes=_field(document, path, "memory.caches_bytes", dict),
        peaks=_field(document, path, "peaks", dict),
        detected_on=_field(document, path, "detected_on", str),
        path=path,
    )


def _read_gpu(document: dict[str, Any], path: Path, reach: str) -> Device:
    return Device(
        name=_field(document, path, "name", str),
        kind="gpu",
        reach=reach,
        cpu_model=_field(document, path, "gpu.model", str),
        cpu_signature="",
        isa=(),
        cores=0,
        memory_bytes=_field(document, path, "memory.total_bytes", int),
        caches_bytes=_field(document, path, "memory.caches_bytes", dict),
        peaks=_field(document, path, "peaks", dict),
        detected_on=_field(document, path, "detected_on", str),
        path=path,
        gpu=_field(document, path, "gpu", dict),
    )


def _field(document: dict[str, Any], path: Path, dotted: str, kind: type) -> Any:
    value: Any = document
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        found = "nothing" if value is None else repr(value)
        raise DataError(f"Device file {path}: '{dotted}' must be a {kind.__name__}, found {found}.")
    return value


def _caches_bytes() -> dict[str, int]:
    """Cache sizes of the first core, as the kernel states them; empty where it does not."""
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    found: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        name = f"l{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")
        found[name] = int(size[:-1]) * units[size[-1]] if size[-1] in units else int(size)
    return found


_KERNELS = """
import json, sys, time, threading
import numpy as np
threads, copy_bytes = int(sys.argv[1]), int(sys.argv[2])
def best(run, seconds=0.6):
    run(); times = []; end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter(); run(); times.append(time.perf_counter() - start)
    return min(times)
n = 1024
a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
flops = 2 * n**3 / best(lambda: np.matmul(a, b, out=c))
source, target = np.ones(copy_bytes // 8), np.ones(copy_bytes // 8)
parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
def copy():
    running = [threading.Thread(target=np.copyto, args=(t, s)) for s, t in parts]
    for t in running: t.start()
    for t in running: t.join()
print(json.dumps([flops / 1e9, 2 * copy_bytes / best(copy) / 1e9]))
"""


def _measure_peaks(threads: int, caches: dict[str, int]) -> dict[str, float]:
    """Both kernels in a process of their own, so that the thread count is really that."""
    import psutil

    copy_bytes = min(max(4 * max(caches.values(), default=0), 256 << 20), psutil.virtual_memory().available // 8, 1 << 30)
    env = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", _KERNELS, str(threads), str(copy_bytes)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise UsageError(f"The peak kernels failed on this machine: {done.stderr.strip().splitlines()[-1]}")
    gflops, bandwidth = json.loads(done.stdout)
    return {f"gflops_fp32_{threads}_threads": round(gflops, 1), f"bandwidth_gb_s_{threads}_threads": round(bandwidth, 1)}
