"""Is a table fit to be given to others: everything that must hold of a contributed one, each fault with its reason.

    hwbench lut check FILE.parquet

A fault makes a table invalid; a remark does not. In the order they are looked at:

    file          written by hwbench, whole, of a version this one reads, not edited, each row once (core/schema.py)
    environment   it says on what machine and under which runtime it was measured, and its hash agrees
    provenance    the device has a file that agrees, rows name that runtime and when they were measured
    rows          keys are those of ops, in their own spelling; statuses, verdicts and intervals are possible
    work          FLOPs, bytes and parameters are those of the key
    unit          latencies are positive and, as a whole, of the size their unit says
    roofline      no row does more arithmetic, or reads more from memory, than the device can
    noise         what is called stable repeats within the standard, and a table of operators as a whole is not noisy
    samples       where raw samples lie beside the table, it is what they fold to

Networks (FILE.networks.parquet) have no work of their own: roofline and unit are left out for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.core.errors import DataError, HwbenchError, UnknownName, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.agent.environment import CHECKED, UNSAID, Environment
from hwbench.lut import schema as lut_schema
from hwbench.lut.fold import table_of
from hwbench.lut.journal import Journal, journal_path
from hwbench.lut.table import environment_of, setting_of, usable
from hwbench.lut.verdict import PRECISION, STABLE
from hwbench.network import work as ops
from hwbench.network.op.base import op_of
from hwbench.network.spec import OpSpec

SAID = tuple(key for key in CHECKED if key not in (*UNSAID, "emulator"))
"""What every environment states."""
STATUSES, VERDICTS = ("ok", "refused", "crashed", "hung"), (STABLE, "noisy", "shifted", "throttled")
LEAST_PROCESSES = 3
"""Of a latency that is called stable; two of a count of instructions."""
WORST_SPREAD = 0.05
"""Median spread of a table, relative: above it, the machine was not fit to be measured on."""
FASTER = {"fp32": 4.0}
"""How far beyond the measured peak of fp32 products rows may be: fast convolutions save up to three of four multiplications."""
FASTER_OTHERWISE = 64.0
"""The same in other number formats: up to sixteen times as many products per instruction."""
FROM_MEMORY, STREAMED = 2.0, 4.0
"""Rows that move so many times the largest cache read from memory, at most so many times as fast as copies were measured."""
IDLE = 0.005
"""Share of the roofline that the middle row of a table reaches at least: less means another unit."""
SAME = 1e-6
"""Relative: numbers that close are one number."""
AHEAD = timedelta(days=1)
"""A clock may be so far off."""


@dataclass
class Check:
    """What was found out about one table."""

    path: Path
    table: str = ""
    rows: int = 0
    faults: list[dict[str, str]] = field(default_factory=list)
    """`check`, `row` (empty where it is about the whole) and `reason`."""
    remarks: list[dict[str, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Checks that were made."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "file": str(self.path), "table": self.table, "rows": self.rows, "valid": not self.faults, "checks": self.done,
            "faults": self.faults, "remarks": self.remarks,
        }  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """A table that could be read, and what its checks need."""

    path: Path
    kind: schema.Table
    rows: list[dict[str, Any]]
    environment: Environment
    device: devices.Device | None
    workspace: Workspace

    @property
    def of_ops(self) -> bool:
        """Whether rows are operators, not whole networks."""
        return self.kind is lut_schema.LUT


Findings = Iterator[tuple[str, str]]
"""(row or nothing, reason) of each fault."""


def check(path: str | Path, workspace: str | Path = ".") -> Check:
    """Looks at a table of operators or of whole networks.

    Args:
        path: FILE.parquet, in a folder called like its device.
        workspace: Where device files are, beside the shipped ones.

    Raises:
        UsageError: there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"There is no table at {path}; give a file that hwbench profile wrote, luts/DEVICE/RUNTIME.parquet.")
    found = Check(path, done=["file"])
    try:
        kind, data, footer = _read(path)
    except DataError as error:
        found.faults.append({"check": "file", "row": "", "reason": str(error)})
        return found
    found.table, found.rows = kind.name, len(data)
    try:
        environment = environment_of(footer, path)
    except DataError as error:
        found.done.append("environment")
        found.faults.append({"check": "environment", "row": "", "reason": str(error)})
        return found
    place = Workspace.at(workspace)
    stored = Stored(path, kind, data.to_pylist(), environment, _device(path, data, place), place)
    for name, look in LOOKS.items():
        if stored.of_ops or name not in OF_OPS:
            found.done.append(name)
            faults = [{"check": name, "row": row, "reason": reason} for row, reason in look(stored)]
            if faults and footer["version"] < SINCE.get(name, 1):
                told = f"{len(faults)} rows of version {footer['version']} differ from what this hwbench counts; the first: "
                found.remarks.append({"check": name, "row": "", "reason": f"{told}{faults[0]['row']}: {faults[0]['reason']}"})
            else:
                found.faults += faults
    found.remarks += [{"check": name, "row": "", "reason": reason} for name, reason in _remarks(stored, footer)]
    return found


def _read(path: Path) -> tuple[schema.Table, Any, dict[str, Any]]:
    """Of whichever kind it is."""
    try:
        return lut_schema.LUT, *schema.read(path, lut_schema.LUT)
    except DataError as error:
        if "holds a 'networks' table" not in str(error):
            raise
    return lut_schema.NETWORKS, *schema.read(path, lut_schema.NETWORKS)


def _device(path: Path, data: Any, place: Workspace) -> devices.Device | None:
    """By what rows say, else by the folder; None where it has no file."""
    named = {name for name in data.column("device").to_pylist() if name is not None} or {path.resolve().parent.name}
    try:
        return devices.get(named.pop(), place.root) if len(named) == 1 else None
    except UnknownName:
        return None


# What is looked at


def _environment(stored: Stored) -> Findings:
    values = stored.environment.values
    for key in SAID:
        if values.get(key) in (None, "", [], 0):
            yield "", f"its environment does not say {key}; measure with hwbench profile, which writes it"


def _provenance(stored: Stored) -> Findings:
    if stored.device is None:
        folder = stored.path.resolve().parent.name
        yield (
            "",
            f"no file of the device '{folder}' is known: put the table into luts/DEVICE/ and devices/DEVICE.toml beside it",
        )
    elif stored.device.cpu_signature and stored.device.cpu_signature != stored.environment.values.get("cpu_signature"):
        theirs = stored.environment.values.get("cpu_signature")
        yield "", f"devices/{stored.device.name}.toml is of a CPU {stored.device.cpu_signature}, the table of {theirs}"
    for row in stored.rows:
        if row["runtime"] is not None and row["runtime"] != stored.environment.values.get("runtime"):
            yield row["key"], f"its runtime is {row['runtime']}, the table's {stored.environment.values.get('runtime')}"
        if row["measured_at"] is not None and (wrong := _when(row["measured_at"])):
            yield row["key"], f"measured_at {row['measured_at']} {wrong}"


def _when(text: str) -> str:
    """What is wrong with a time; nothing where it is one."""
    try:
        taken = datetime.fromisoformat(text)
    except ValueError:
        return "is no time (ISO 8601)"
    if taken.tzinfo is None:
        return "has no time zone"
    return "lies ahead" if taken > datetime.now(UTC) + AHEAD else ""


def _rows(stored: Stored) -> Findings:
    for row in stored.rows:
        key = row["key"]
        if stored.of_ops and (wrong := _key_fault(key)):
            yield key, wrong
        if row["status"] not in STATUSES:
            yield key, f"status '{row['status']}' is none of {', '.join(STATUSES)}"
        if row["status"] == "ok" and not usable(row) and row.get("latency_mean_ms") is None:
            yield key, "status ok, and nothing was measured"
        if row["status"] != "ok" and usable(row):
            yield key, f"status {row['status']}, and a number"
        if row["verdict"] not in (None, *VERDICTS):
            yield key, f"verdict '{row['verdict']}' is none of {', '.join(VERDICTS)}"
        if min(row["batch"], row["threads"]) < 1:
            yield key, f"batch {row['batch']}, threads {row['threads']}"
        low, middle, high = (row[name] for name in ("median_low_ms", "latency_median_ms", "median_high_ms"))
        if None not in (low, middle, high) and not low * (1 - SAME) <= middle <= high * (1 + SAME):
            yield key, f"the median {middle:.4g} ms lies outside its interval, {low:.4g} to {high:.4g}"
        if row["latency_min_ms"] and middle and row["latency_min_ms"] > middle * (1 + SAME):
            yield key, f"the smallest level {row['latency_min_ms']:.4g} ms is above the median {middle:.4g}"


def _key_fault(key: str) -> str:
    try:
        spec = OpSpec.parse(key)
        if spec.key != key:
            return f"is written {spec.key}"
        if not registry.is_registered("op", spec.op):
            return f"'{spec.op}' is no operator of hwbench (hwbench list ops)"
        op_of(spec).signature(spec)
    except (HwbenchError, ValueError, KeyError, TypeError) as error:
        return f"is no key: {error}"
    return ""


def _work(stored: Stored) -> Findings:
    for row in stored.rows:
        if _key_fault(row["key"]):
            continue
        features = ops.features(OpSpec.parse(row["key"]), setting_of(row))
        for name in ("flops", "bytes_moved", "parameters"):
            if row[name] is not None and abs(row[name] - features[name]) > SAME * max(1.0, features[name]):
                yield row["key"], f"{name} is {row[name]:.6g}, the key says {features[name]:.6g}"


def _unit(stored: Stored) -> Findings:
    for row in stored.rows:
        for name in ("latency_min_ms", "latency_median_ms", "instructions"):
            if row[name] is not None and row[name] <= 0:
                yield row["key"], f"{name} is {row[name]:.4g}: nothing takes no time, or less"
    shares = [max(share) for row in stored.rows if (share := _shares(row, stored)) is not None]
    if shares and (middle := float(np.median(shares))) < IDLE:
        yield "", f"the middle row reaches {middle:.2g} of what the device can: are latencies in ms?"


def _shares(row: Mapping[str, Any], stored: Stored) -> tuple[float, float] | None:
    """(of arithmetic, of bandwidth) that a row reaches of the device's peaks; None where one is not known."""
    peaks = stored.device.undisturbed_peaks if stored.device else {}
    at = f"{row['threads']}_threads"
    gflops, bandwidth = peaks.get(f"gflops_fp32_{at}"), peaks.get(f"bandwidth_gb_s_{at}")
    ms, flops, moved = row["latency_min_ms"], row.get("flops"), row.get("bytes_moved")
    if not gflops or not bandwidth or flops is None or moved is None or ms is None or ms <= 0:
        return None
    return flops / ms / 1e6 / gflops, moved / ms / 1e6 / bandwidth


def _roofline(stored: Stored) -> Findings:
    caches = stored.device.caches_bytes.values() if stored.device else ()
    for row in stored.rows:
        if (shares := _shares(row, stored)) is None:
            continue
        most = FASTER.get(row["dtype"], FASTER_OTHERWISE)
        if shares[0] > most:
            yield (
                row["key"],
                f"{row['latency_min_ms']:.4g} ms would be {shares[0]:.1f} times the device's peak in fp32 ({most:g} at most)",
            )
        if caches and row["bytes_moved"] > FROM_MEMORY * max(caches) and shares[1] > STREAMED:
            yield (
                row["key"],
                f"{row['latency_min_ms']:.4g} ms would read {shares[1]:.1f} times as fast as memory ({STREAMED:g} at most)",
            )


def _noise(stored: Stored) -> Findings:
    spreads = []
    for row in stored.rows:
        spread, counted = row["min_spread"], row["instructions"] is not None
        if spread is not None and spread == spread:
            spreads.append(spread)
        if row["verdict"] != STABLE:
            continue
        if spread is not None and spread > PRECISION:
            yield row["key"], f"called stable with minima {spread:.1%} apart (standard: {PRECISION:.0%})"
        if row["processes"] < (2 if counted else LEAST_PROCESSES):
            yield row["key"], f"called stable after {row['processes']} processes"
    if stored.of_ops and spreads and (middle := float(np.median(spreads))) > WORST_SPREAD:
        yield "", f"the middle row's minima lie {middle:.1%} apart (standard: {WORST_SPREAD:.0%}): measure on a quiet machine"


def _samples(stored: Stored) -> Findings:
    journal = Journal(journal_path(stored.path))
    if not journal.path.exists():
        return
    try:
        folded = table_of(journal, stored.path, stored.environment, PRECISION).rows
    except HwbenchError as error:
        yield "", str(error)
        return
    for row in stored.rows:
        again = folded.get((row["key"], setting_of(row).key))
        if again is None:
            yield row["key"], f"{journal.path.name} has no sample of it in this environment"
            continue
        for name in ("latency_min_ms", "instructions"):
            mine, theirs = row[name], again.get(name)
            if (mine is None) != (theirs is None) or (mine is not None and abs(mine - theirs) > SAME * mine):
                yield row["key"], f"{name} is {mine}, its samples say {theirs}"


LOOKS: Mapping[str, Callable[[Stored], Findings]] = {
    "environment": _environment,
    "provenance": _provenance,
    "rows": _rows,
    "work": _work,
    "unit": _unit,
    "roofline": _roofline,
    "noise": _noise,
    "samples": _samples,
}
SINCE = {"work": 4, "samples": 2}
"""Check -> version from which on a difference is a fault: bytes of look-ups were counted otherwise before version 4, and a
minimum of version 1 was the smallest single reading (lut/schema.py)."""
OF_OPS = ("work", "unit", "roofline", "samples")
"""Checks that only tables of operators have."""


def _remarks(stored: Stored, footer: Mapping[str, Any]) -> Findings:
    """What is no fault, and worth knowing: (check, reason)."""
    if footer["version"] < stored.kind.version:
        yield "file", f"of version {footer['version']}, read as {stored.kind.version}: columns added since are empty"
    if stored.of_ops and not journal_path(stored.path).exists():
        yield "samples", "no raw samples beside it: what it was folded from cannot be looked at"
    timed = [row for row in stored.rows if row["latency_min_ms"] is not None]
    if doubtful := sum(row["verdict"] not in (None, STABLE) for row in timed):
        yield "noise", f"{doubtful} of {len(timed)} rows are in doubt, and say so (hwbench lut show FILE --doubtful)"
    if stored.of_ops and timed and not any(_shares(row, stored) for row in timed):
        yield "roofline", "not held against the roofline: the device's file has no peaks (hwbench device detect)"
