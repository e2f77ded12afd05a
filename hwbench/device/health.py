"""Is this machine fit to be measured on, now?

    hwbench device check         ten findings and a verdict; changes nothing, leaves nothing behind

What cannot be read on this machine is said to be unreadable, never guessed. Every check is a function of what was
read, so that any machine's /proc and /sys can be judged anywhere.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hwbench.core.errors import MeasurementError, UsageError
from hwbench.core.progress import Tick, no_tick
from hwbench.device.system import (
    CGROUPS,
    CPUS,
    PROC,
    CpuTimes,
    Processes,
    cpu_quotas,
    cpu_times,
    hottest_c,
    memory_bytes,
    process_times,
    read_text,
    throttle_count,
    usable_cores,
)

WATCH_S = 1.0
"""How long other processes are watched: 100 of the kernel's ticks, so 0.01 core can be seen."""
SPINNING_MS = 5.0
GB = 1e9
STEADY_SHARE = 0.2
"""The steady level is where this share of the readings lies closest together: the fastest state is rarer than that."""
BLIND = "judge by the noise floor"
"""What is left to do where the hardware's state is hidden."""


@dataclass(frozen=True)
class Finding:
    """What one check saw."""

    name: str
    status: Literal["good", "warning", "bad", "unreadable"]
    found: str
    """The numbers seen, in words, with units."""
    advice: str = ""
    """What to do; empty when good."""


def check_device(seconds: float = 3.0, tick: Tick = no_tick) -> list[Finding]:
    """All findings about this machine; `seconds` is the length of the noise reading, the rest takes about 3 s.

    Raises:
        UsageError: `seconds` is not between 0 and 600.
        MeasurementError: a process of the check failed.
    """
    if not 0 < seconds <= 600:
        raise UsageError(f"The noise reading must take more than 0 and at most 600 seconds, asked: {seconds:g}.")
    throttled = throttle_count()
    names, quiet = process_times(), cpu_times()
    time.sleep(WATCH_S)
    watched, names_after = cpu_times(), process_times()
    tick(1, 4)
    # Stolen time only shows while something wants to run, so it is taken over the noise reading.
    running = cpu_times()
    readings_ns = take_readings(seconds)
    ran = cpu_times()
    tick(2, 4)
    cores, usable = os.cpu_count() or 1, usable_cores()
    spinning = thread_spinning(*(spinning_ms(stop) for stop in (True, False))) if usable > 1 else thread_spinning()
    tick(3, 4)
    findings = [
        noise_floor(readings_ns),
        other_load(quiet, watched, names, names_after),
        governor(),
        turbo(),
        throttling(throttled, throttle_count(), hottest_c()),
        spinning,
        memory(*memory_bytes()),
        cpu_limit(cores, usable),
        virtual_machine(running, ran),
        timer(),
    ]
    tick(4, 4)
    return findings


def fit(findings: Sequence[Finding]) -> str:
    """The verdict: unfit (any bad), usable (any warning) or fit; what is unreadable does not count."""
    statuses = {finding.status for finding in findings}
    return "unfit" if "bad" in statuses else "usable" if "warning" in statuses else "fit"


def noise_floor(readings_ns: Sequence[float]) -> Finding:
    """How much of the time the same small work takes the same time."""
    readings = np.asarray(readings_ns, float)
    level = steady_level(readings)
    steady = float(np.mean(np.abs(readings / level - 1) <= 0.02))
    slow = float(np.mean(readings > 1.2 * level))
    quarters = [steady_level(part) for part in np.array_split(readings, 4)]
    moved = (max(quarters) - min(quarters)) / level
    found = (
        f"{100 * steady:.0f} % of {len(readings)} readings within 2 % of the steady {level / 1e3:.1f} us, "
        f"{100 * slow:.0f} % over 1.2x of it; the steady level moved {100 * moved:.1f} % between quarters"
    )
    if steady >= 0.7 and moved <= 0.01:
        return Finding("noise floor", "good", found)
    if steady < 0.2 or moved > 0.1:
        return Finding("noise floor", "bad", found, "stop other work or use another machine: no level here repeats")
    return Finding("noise floor", "warning", found, "measure longer, or when it is quieter; medians of short runs will differ")


def steady_level(readings: Sequence[float] | np.ndarray) -> float:
    """Midpoint of the shortest interval that holds a fifth of the readings."""
    ordered = np.sort(np.asarray(readings, float))
    held = max(1, math.ceil(STEADY_SHARE * len(ordered)))
    first = int(np.argmin(ordered[held - 1 :] - ordered[: len(ordered) - held + 1]))
    return float(ordered[first] + ordered[first + held - 1]) / 2


_READINGS = """
import gc, json, sys, time
import numpy as np
seconds, clock = float(sys.argv[1]), time.perf_counter_ns
a, b, c = (np.ones((64, 64), np.float32) for _ in range(3))
def take(calls):
    start = clock()
    for _ in calls:
        np.matmul(a, b, out=c)
    return clock() - start
gc.disable()
calls = range(max(1, round(80e3 / min(take(range(1)) for _ in range(2000)))))
readings, end = [], clock() + seconds * 1e9
while clock() < end or len(readings) < 40:
    readings.append(take(calls))
print(json.dumps(readings))
"""


def take_readings(seconds: float) -> list[int]:
    """Nanoseconds of about 80 us of small matrix products, over and over, on one thread of a fresh process."""
    readings: list[int] = _child(_READINGS, seconds, timeout_s=seconds + 60)
    return readings


def other_load(before: CpuTimes | None, after: CpuTimes | None, names: Processes, names_after: Processes) -> Finding:
    """Cores that other processes used between two readings, and the busiest of them by name."""
    if before is None or after is None:
        return Finding("other load", "unreadable", "no CPU times in /proc/stat on this system", "look at a process monitor")
    watched_s = after.at_s - before.at_s
    cores = max(0.0, (after.busy_s - before.busy_s - (after.own_s - before.own_s)) / watched_s)
    used = {pid: (name, cpu_s - names.get(pid, ("", 0.0))[1]) for pid, (name, cpu_s) in names_after.items()}
    name, busiest_s = max(used.values(), key=lambda item: item[1], default=("", 0.0))
    found = f"{cores:.2f} cores used by other processes over {watched_s:.1f} s"
    if busiest_s > 0:
        found += f"; busiest: {name} ({busiest_s / watched_s:.2f})"
        advice = f"stop {name}, or wait until it has ended"
    else:
        advice = "stop it: no process seen here accounts for it (short-lived ones, or outside this container)"
    if cores < 0.1:
        return Finding("other load", "good", found)
    return Finding("other load", "warning" if cores < 0.5 else "bad", found, advice)


def governor(cpus: Path = CPUS) -> Finding:
    """Whether every core's frequency governor is `performance`."""
    files = sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    counts = Counter(text for path in files if (text := read_text(path)))
    if not counts:
        return Finding("governor", "unreadable", "no readable cpufreq files (usual in a virtual machine)", BLIND)
    found = ", ".join(f"{name} on {count} cores" for name, count in sorted(counts.items()))
    if set(counts) == {"performance"}:
        return Finding("governor", "good", found)
    return Finding("governor", "warning", found, f"run: echo performance | sudo tee {cpus}/cpu[0-9]*/cpufreq/scaling_governor")


def turbo(cpus: Path = CPUS) -> Finding:
    """Whether the clock may rise above its nominal frequency."""
    switches = ((cpus / "intel_pstate" / "no_turbo", "0", "1"), (cpus / "cpufreq" / "boost", "1", "0"))
    for path, on, off in switches:
        value = read_text(path)
        if value == on:
            advice = f"the clock then depends on load and temperature; to switch it off: echo {off} | sudo tee {path}"
            return Finding("turbo", "warning", f"on ({path.name} is {value})", advice)
        if value == off:
            return Finding("turbo", "good", f"off ({path.name} is {value})")
    return Finding("turbo", "unreadable", "neither no_turbo nor boost can be read (usual in a virtual machine)", BLIND)


def throttling(before: int | None, after: int | None, hottest: float | None) -> Finding:
    """Whether the CPU slowed down to cool during the check. A temperature alone does not tell."""
    heat = "no temperature readable" if hottest is None else f"hottest zone {hottest:.0f} C"
    if before is None or after is None:
        return Finding("throttling", "unreadable", f"no throttle counters; {heat}", BLIND)
    if after > before:
        found = f"throttle counters rose by {after - before} during the check; {heat}"
        return Finding("throttling", "bad", found, "let the machine cool, or improve its cooling; then check again")
    return Finding("throttling", "good", f"throttle counters stayed at {after}; {heat}")


def thread_spinning(stopped_ms: float | None = None, default_ms: float | None = None) -> Finding:
    """Whether onnxruntime's idle threads leave the other core alone; without readings there is no other core."""
    if stopped_ms is None or default_ms is None:
        return Finding("thread spinning", "unreadable", "not applicable: only one core may be used")
    found = (
        f"a 2-thread session used {stopped_ms:.1f} ms of CPU time in the 100 ms after a run with hwbench's setting, "
        f"{default_ms:.1f} ms with onnxruntime's default"
    )
    if stopped_ms < SPINNING_MS:
        return Finding("thread spinning", "good", found)
    advice = "session.force_spinning_stop does not end it here: use another onnxruntime, or measure with --threads 1"
    return Finding("thread spinning", "warning", found, advice)


_SPINNING = """
import json, sys, time
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
side = 256
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [side, side]) for name in "xy")
ones = np.ones((side, side), np.float32)
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(ones, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
options = ort.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = 2, 1, 3
if sys.argv[1] == "stop":
    options.add_session_config_entry("session.force_spinning_stop", "1")
session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
used = []
for _ in range(3):
    for _ in range(20):
        session.run(None, {"x": ones})
    start = time.process_time()
    time.sleep(0.1)
    used.append((time.process_time() - start) * 1e3)
print(json.dumps(sorted(used)[1]))
"""


def spinning_ms(stop: bool) -> float:
    """CPU milliseconds of a fresh 2-thread onnxruntime session in the 100 ms after its run ended; median of 3."""
    return float(_child(_SPINNING, "stop" if stop else "default", timeout_s=60))


def memory(available_bytes: int, swapped_bytes: int) -> Finding:
    """Whether a verification, which may take 2.5 GB, fits into RAM."""
    available, swapped = available_bytes / GB, swapped_bytes / GB
    found = f"{available:.1f} GB of RAM available, {swapped:.1f} GB of swap in use"
    if available < 1:
        return Finding("memory", "bad", found, "free memory: hwbench may be killed or swap while it measures")
    if available < 3:
        return Finding("memory", "warning", found, "free memory: a verification may take 2.5 GB")
    if swapped_bytes > 0:
        return Finding(
            "memory", "warning", found, "what was swapped out slows the first runs: sudo swapoff -a && sudo swapon -a"
        )
    return Finding("memory", "good", found)


def cpu_limit(cores: int, usable: int, own_cgroups: Path = PROC / "self" / "cgroup", root: Path = CGROUPS) -> Finding:
    """Whether a cgroup or the affinity keeps this process from the machine's cores."""
    quotas = cpu_quotas(own_cgroups, root)
    found = [f"{usable} of {cores} cores may be used"]
    advice = []
    if usable < cores:
        advice.append("a latency with more threads than that is not the machine's: widen the affinity (taskset, cpuset)")
    if quotas is None:
        found.append("no cgroup can be read, so a quota would not be seen")
    elif quotas:
        limit, quota_us, period_us = min((quota / period, quota, period) for quota, period in quotas)
        found.append(f"quota {quota_us / 1e3:g} ms of CPU time per {period_us / 1e3:g} ms ({limit:.2g} cores)")
        if limit < cores:
            advice.append("runs are stopped for part of each period once the quota is used up: lift the container's CPU limit")
    else:
        found.append("no quota")
    status: Literal["good", "warning", "unreadable"] = "warning" if advice else "unreadable" if quotas is None else "good"
    return Finding("CPU limit", status, "; ".join(found), "; ".join(advice))


def virtual_machine(before: CpuTimes | None, after: CpuTimes | None, cpuinfo: Path = PROC / "cpuinfo") -> Finding:
    """Whether a hypervisor stands between us and the CPU, and the share of running time it took between two readings."""
    lines = [line.partition(":") for line in (read_text(cpuinfo) or "").splitlines()]
    flags = next((value.split() for name, _, value in lines if name.strip() == "flags"), None)
    if flags is None:
        return Finding("virtual machine", "unreadable", "this CPU's /proc/cpuinfo does not tell of a hypervisor", BLIND)
    if "hypervisor" not in flags:
        return Finding("virtual machine", "good", "no hypervisor")
    stolen = "stolen time not readable"
    if before is not None and after is not None:
        stolen_s = after.stolen_s - before.stolen_s
        wanted_s = after.busy_s - before.busy_s + stolen_s
        share = stolen_s / wanted_s if wanted_s > 0 else 0.0
        stolen = f"{100 * share:.1f} % of the running time stolen during the noise reading"
    advice = "clocks and neighbours cannot be seen, and stolen time does not show a busy sibling hyperthread: prefer bare metal"
    return Finding("virtual machine", "warning", f"runs under a hypervisor; {stolen}", advice)


def timer(clock: Callable[[], int] = time.perf_counter_ns) -> Finding:
    """What reading the clock costs, and its smallest step."""
    batches = [[clock() for _ in range(1000)] for _ in range(20)]
    cost_ns = min((batch[-1] - batch[0]) / (len(batch) - 1) for batch in batches)
    steps = np.diff(np.array(batches)).ravel()
    advice = "see /sys/devices/system/clocksource/clocksource0/current_clocksource: tsc is fast, hpet and acpi_pm are not"
    if not (steps > 0).any():
        return Finding("timer", "warning", f"the clock did not move over {len(batches[0])} readings", advice)
    step_ns = int(steps[steps > 0].min())
    found = f"reading the clock costs {cost_ns:.0f} ns, smallest step {step_ns} ns"
    if max(cost_ns, step_ns) < 1000:
        return Finding("timer", "good", found)
    return Finding("timer", "warning", found, advice)


def _child(code: str, argument: object, timeout_s: float) -> Any:
    """What a fresh Python process with one BLAS thread prints as JSON."""
    # onnxruntime's telemetry would leave an identifier and a database in the user's cache.
    env = {
        **os.environ,
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ORT_DISABLE_TELEMETRY"), "1"),
    }
    # -P: a numpy.py in the user's folder is not ours to run. -B: the check leaves no file behind.
    command = [sys.executable, "-P", "-B", "-c", code, str(argument)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"A process of the device check did not end within {timeout_s:g} s.") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise MeasurementError(f"A process of the device check failed: {lines[-1]}")
    return json.loads(done.stdout)
