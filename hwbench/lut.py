"""Lookup tables: a fold of the sample journal for one environment, one row per (op key, setting).

luts/<device>/<runtime>.parquet             ops and fused blocks
luts/<device>/<runtime>.networks.parquet    whole networks, measured to calibrate and verify
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import device as devices
from hwbench import latency, lut_schema, verdict
from hwbench.core import registry, schema
from hwbench.core.errors import DataError, EnvironmentMismatch, MeasurementError, MissingOps, UsageError
from hwbench.core.workspace import Workspace
from hwbench.environment import UNSAID, Environment
from hwbench.journal import Entry, Journal
from hwbench.measurement import Measurement, Sample
from hwbench.network import work as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.runtime.base import SOFTWARE
from hwbench.space import values as spaces

STATISTICS = {"min": "latency_min_ms", "p50": "latency_median_ms"}
"""A budget's statistic -> the column that holds it."""
INSTRUCTIONS = "instructions"
DEFAULT_RUNTIME = "onnxruntime"
METRICS = ("latency_min_ms", INSTRUCTIONS)
"""What a usable row has one of."""


@dataclass(frozen=True)
class Lut:
    """Measured latencies of ops under one runtime on one machine."""

    path: Path
    environment: Environment
    rows: Mapping[tuple[str, str], Mapping[str, Any]]
    """(op key, setting key) -> the stored row."""

    @classmethod
    def read(cls, path: Path, local: bool = False) -> Lut:
        """A table from its file.

        Args:
            path: The Parquet file.
            local: Refuse it unless it was measured on this machine under the installed runtime.
        """
        data, footer = schema.read(path, lut_schema.LUT)
        environment = environment_of(footer, path)
        if local:
            check_local(environment, path)
        rows = data.to_pylist()
        return cls(path, environment, {(row["key"], setting_of(row).key): row for row in rows})

    def latency_ms(self, specs: Sequence[OpSpec], setting: Setting, statistic: str) -> np.ndarray:
        """The latency of each op; an op the table lacks is an error that lists all that are missing."""
        return self._column(specs, setting, STATISTICS[statistic])

    def instructions(self, specs: Sequence[OpSpec], setting: Setting) -> np.ndarray:
        """The instructions of each op, likewise."""
        return self._column(specs, setting, INSTRUCTIONS)

    def _column(self, specs: Sequence[OpSpec], setting: Setting, column: str) -> np.ndarray:
        missing = self.missing(specs, setting, column)
        if missing:
            raise missing_ops(missing, setting, self.path, self.path.parent.name, self.path.stem)
        return np.array([self.rows[spec.key, setting.key][column] for spec in specs], float)

    def missing(self, specs: Iterable[OpSpec], setting: Setting, column: str = METRICS[0]) -> list[str]:
        """Keys without a usable row, sorted."""
        usable = {key for (key, at), row in self.rows.items() if at == setting.key and row[column] is not None}
        return sorted({spec.key for spec in specs} - usable)

    def require_timed(self) -> None:
        """Raises unless the table holds latencies of hardware: counts are none, and a software device has no speed."""
        on = str(self.environment.values.get("executes_on", ""))
        if on.startswith(SOFTWARE):
            raise MeasurementError(
                f"{self.path} was measured on a {on}: that proves the path, not a speed. Measure on hardware."
            )
        if self.environment.values.get("emulator"):
            raise MeasurementError(
                f"{self.path} holds instructions, counted under emulation, and no latency. "
                f"Limit them instead: hwbench search --limit instructions_m@{self.path.parent.name}=MILLIONS"
            )

    def coverage(self, specs: Sequence[OpSpec], setting: Setting) -> float:
        """Share of the ops (repeats counted) that the table answers for."""
        missing = set(self.missing(specs, setting))
        return sum(spec.key not in missing for spec in specs) / max(len(specs), 1)

    def merge(self, other: Lut) -> Lut:
        """Both tables' rows; rows of unlike environments are refused, both named.

        Where both have a row, the one with more processes stays.
        """
        refuse_mixing(self.environment, other.environment, str(self.path), str(other.path))
        rows = dict(self.rows)
        for identity, row in other.rows.items():
            if identity not in rows or row["processes"] > rows[identity]["processes"]:
                rows[identity] = row
        return Lut(self.path, self.environment, rows)

    def write(self, path: Path) -> None:
        """Stores the table at a path."""
        facts = {"environment": dict(self.environment.values), "environment_hash": self.environment.hash}
        schema.write(path, lut_schema.LUT, list(self.rows.values()), facts)


def missing_ops(
    missing: Sequence[str],
    setting: Setting,
    source: Path,
    device: str,
    runtime: str,
    space: str | None = None,
    *,
    fitted: bool = False,
    metric: str = "latency",
) -> MissingOps:
    """The error for ops no table (or no predictor fitted on one) covers, with the commands that would change that."""
    shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more (--json lists all)" if len(missing) > 4 else "")
    options = f"{asked(device, runtime, space)} --batch {setting.batch} --threads {setting.threads} --dtype {setting.dtype}"
    then = f", then: hwbench fit {options}" if fitted else ""
    return MissingOps(
        f"{len(missing)} ops have no {metric} at {setting.key} in {source}: {shown}. Run: hwbench profile {options}{then}",
        missing,
    )


def asked(device: str, runtime: str, space: str | None = None) -> str:
    """What to tell `hwbench profile` or `fit` to get a table or predictor; what goes without saying is left out."""
    where = "" if device == devices.local_name() else f"--device {device} "
    how = "" if runtime == DEFAULT_RUNTIME else f"--runtime {runtime} "
    return f"{where}{how}--space {space or 'SPACE'}"


def refuse_mixing(mine: Environment, other: Environment, my_name: str, other_name: str, but: Container[str] = ()) -> None:
    """Raises if results of the two environments must not stand side by side; what they differ in `but` may differ."""
    differences = [each for each in mine.differences(other) if each[0] not in but]
    if differences:
        key, a, b = differences[0]
        raise EnvironmentMismatch(
            f"{my_name} and {other_name} were measured in unlike environments: {key} is {_text(a)} in the first, "
            f"{_text(b)} in the second{f' ({len(differences) - 1} more differ)' if len(differences) > 1 else ''}. "
            "Measure both on one machine with one runtime version."
        )


def check_local(environment: Environment, path: Path) -> None:
    """Raises unless a table's environment is this machine's, now."""
    from hwbench import environment as environments

    runtime = registry.get("runtime", str(environment.values["runtime"]))
    here = environments.collect(runtime.name, runtime.version(), runtime.executes_on())
    differences = environment.differences(here)
    if differences:
        key, theirs, mine = differences[0]
        raise EnvironmentMismatch(
            f"{path} was measured on another machine or runtime: {key} is {_text(theirs)} there, {_text(mine)} here. "
            "Name its device with --device to ask about that one, or run: hwbench profile --space SPACE"
        )


def _text(value: Any) -> str:
    return "'" + (" ".join(value) if isinstance(value, list) else str(value)) + "'"


def usable(row: Mapping[str, Any]) -> bool:
    """Whether a row has something measured."""
    return any(row[metric] is not None for metric in METRICS)


def setting_of(row: Mapping[str, Any]) -> Setting:
    """The Setting a stored row was measured under."""
    return Setting(row["dtype"], row["batch"], row["threads"], row["scenario"])


def parse_setting(key: str) -> Setting:
    """The Setting of a journal line's key."""
    dtype, batch, threads, scenario = key.split("-", 3)
    return Setting(dtype, int(batch[1:]), int(threads[1:]), scenario)


def lut_path(workspace: Workspace, device: str, runtime: str) -> Path:
    """Where a workspace keeps the table."""
    return workspace.path("luts", device, f"{runtime}.parquet")


def find_lut(workspace: Workspace, device: str, runtime: str) -> Path:
    """The table of a device and runtime, in the workspace or shipped.

    Raises:
        UsageError: nobody measured that yet.
    """
    found = workspace.find("luts", device, f"{runtime}.parquet")
    if found is None:
        raise UsageError(
            f"There is no table of {runtime} on {device} in {workspace.root}. Run: hwbench profile {asked(device, runtime)}"
        )
    return found


def measurement(key: str, setting: Setting, samples: Iterable[Sample]) -> Measurement:
    """The good bursts of one item, by the process that took them; links only join groups."""
    by_worker: dict[str, tuple[tuple[float, ...], ...]] = {}
    extra: dict[str, tuple[float, ...]] = {}
    for sample in samples:
        if sample.status == "ok" and not sample.link:
            by_worker[sample.worker] = (*by_worker.get(sample.worker, ()), sample.readings_ns)
            extra[sample.worker] = extra.get(sample.worker, ()) + sample.extra_ns
    return Measurement(key, setting, by_worker, extra)


def summarise_journal(
    journal: Journal, environment: Environment, precision: float, editions: Mapping[tuple[str, str], int] | None = None
) -> list[dict[str, Any]]:
    """One row per (key, setting) of everything measured in that environment: its newest edition, or the one given."""
    entries = list(journal.matching(environment))
    wanted = editions if editions is not None else newest_editions(entries)
    groups: dict[tuple[str, str], list[Sample]] = {}
    for entry in entries:
        identity = (entry.sample.key, entry.setting)
        if wanted.get(identity) == entry.edition:
            groups.setdefault(identity, []).append(entry.sample)
    everything = {at: [s for (_, a), samples in groups.items() if a == at for s in samples] for at in {a for _, a in groups}}
    speeds = {at: _Speed(samples) for at, samples in everything.items()}
    on = environment.values.get("executes_on", UNSAID["executes_on"])
    return [
        {**_row(key, parse_setting(at), samples, precision, speeds[at]), "executes_on": on}
        for (key, at), samples in groups.items()
    ]


def newest_editions(entries: Iterable[Entry]) -> dict[tuple[str, str], int]:
    """(key, setting key) -> the edition that counts: the newest with three processes, or with as many as an older one.

    So an edition that failed or was interrupted does not hide a good one.
    """
    processes: dict[tuple[str, str], dict[int, set[int]]] = {}
    for entry in entries:
        found = processes.setdefault((entry.sample.key, entry.setting), {}).setdefault(entry.edition, set())
        if entry.sample.status == "ok":
            found.add(entry.sample.process)
    newest = {}
    for identity, by_edition in processes.items():
        enough = min(3, max(map(len, by_edition.values())))
        newest[identity] = max(edition for edition, found in by_edition.items() if len(found) >= enough)
    return newest


class _Speed:
    """What the canary, the links and the empty call say of all samples of a setting."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        good = [s for s in samples if s.status == "ok"]
        self.steady_ns = verdict.steady_canary_ns([s.canary_ns for s in good if s.canary_ns is not None])
        empty = [s.empty_ns for s in good if s.empty_ns is not None]
        # The same kind of estimate as a row's: the least disturbed of many short bursts, not the luckiest.
        self.overhead_ns = float(np.percentile(empty, 10)) if empty else None
        counted = [s.empty_instructions for s in good if s.empty_instructions is not None]
        self.overhead_instructions = float(np.median(counted)) if counted else None
        own: dict[tuple[int, str], list[float]] = {}
        linked: dict[tuple[str, int, str], list[float]] = {}
        for s in good:
            if s.link:
                linked.setdefault((s.worker, s.process, s.key), []).extend(s.undisturbed_ns)
            else:
                own.setdefault((s.process, s.key), []).extend(s.undisturbed_ns)
        joined = {(process, key): latency.level(own[process, key]) for _, process, key in linked if (process, key) in own}
        self.shifts = verdict.group_shifts(joined, {place: latency.level(readings) for place, readings in linked.items()})


def processes(samples: Iterable[Sample]) -> list[verdict.Process]:
    """What each worker saw of one item, in the order they ran."""
    by_worker: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.status == "ok" and not sample.link:
            by_worker.setdefault(sample.worker, []).append(sample)

    def known(taken: list[Sample], name: str) -> list[Any]:
        return [value for s in taken if (value := getattr(s, name)) is not None]

    return [
        verdict.Process(
            worker,
            latency.level([r for s in taken for r in s.undisturbed_ns]),
            float(min(canary)) if (canary := known(taken, "canary_ns")) else None,
            float(np.mean(others)) if (others := known(taken, "other_cores")) else None,
            sum(counts) if (counts := known(taken, "throttled")) else None,
        )
        for worker, taken in by_worker.items()
    ]


def _row(key: str, setting: Setting, samples: Sequence[Sample], precision: float, speed: _Speed) -> dict[str, Any]:
    seen = measurement(key, setting, samples)
    row: dict[str, Any] = {
        "key": key, "dtype": setting.dtype, "batch": setting.batch, "threads": setting.threads,
        "scenario": setting.scenario, "processes": len(seen.bursts_ns), "overhead_ns": speed.overhead_ns,
        "overhead_instructions": speed.overhead_instructions,
    }  # fmt: skip
    counted = [s for s in samples if s.status == "ok" and s.instructions]
    if counted:
        return {**row, **_counted(counted)}
    if not seen.bursts_ns:
        return {**row, "samples": 0, "status": samples[-1].status, "reason": samples[-1].reason}
    found = latency.summarise(seen.bursts_ns, seen.extra_ns)
    seen_by = processes(samples)
    judged = verdict.judge(seen_by, precision, speed.steady_ns, speed.shifts)
    others = [p.other_cores for p in seen_by if p.other_cores is not None]
    return {
        **row, "latency_min_ms": found.min_ms, "latency_median_ms": found.median_ms, "min_spread": found.min_spread,
        "median_spread": found.median_spread, "latency_fastest_ms": found.fastest_ms, "median_low_ms": found.median_low_ms,
        "median_high_ms": found.median_high_ms, "samples": found.samples, "status": "ok", "verdict": judged.word,
        "reason": judged.reason, "other_cores": float(np.mean(others)) if others else None,
    }  # fmt: skip


def _counted(samples: Sequence[Sample]) -> dict[str, Any]:
    """A row of instructions: the median of the processes' medians, and how far those lie apart."""
    by_worker: dict[str, list[int]] = {}
    for sample in samples:
        if not sample.link:
            by_worker.setdefault(sample.worker, []).extend(sample.instructions)
    medians = [float(np.median(counts)) for counts in by_worker.values()]
    judged = verdict.judge_counts(medians)
    return {
        "instructions": float(np.median(medians)), "processes": len(medians), "samples": len(samples), "status": "ok",
        "verdict": judged.word, "reason": judged.reason,
    }  # fmt: skip


LATENCIES = ("latency_min_ms", "latency_median_ms", "latency_fastest_ms", "median_low_ms", "median_high_ms")
LEAST_MS = 1e-5
"""What is left of an op that takes no longer than an empty call; its verdict says so."""


def _subtract_overhead(row: dict[str, Any]) -> None:
    """Takes the cost of a call off an op's latencies: in a network the op is not called on its own."""
    overhead_ns = row.pop("overhead_ns")
    if row["status"] != "ok" or row["scenario"] != "back-to-back":
        return
    if row.get(INSTRUCTIONS) is not None and row["overhead_instructions"] is not None:
        row[INSTRUCTIONS] = max(row[INSTRUCTIONS] - row["overhead_instructions"], 1.0)
    if row.get("latency_min_ms") is None or overhead_ns is None:
        return
    row["overhead_ms"] = overhead_ns / 1e6
    if row["latency_min_ms"] < 1.1 * row["overhead_ms"]:
        row["reason"] += f"; hardly more than an empty call ({overhead_ns / 1e3:.1f} us)"
        row["verdict"] = "noisy" if row["verdict"] == "stable" else row["verdict"]
    for name in LATENCIES:
        row[name] = max(row[name] - row["overhead_ms"], LEAST_MS)


def fold(journal: Journal, path: Path, environment: Environment, precision: float) -> Lut:
    """Writes the table of one environment from the journal and returns it."""
    lut = table_of(journal, path, environment, precision)
    lut.write(path)
    return Lut.read(path)


def table_of(
    journal: Journal,
    path: Path,
    environment: Environment,
    precision: float,
    editions: Mapping[tuple[str, str], int] | None = None,
) -> Lut:
    """The table a journal holds of one environment, not stored; `editions` asks for older rows."""
    rows = summarise_journal(journal, environment, precision, editions)
    for row in rows:
        _subtract_overhead(row)
        spec = OpSpec.parse(row["key"])
        features = ops.features(spec, setting_of(row))
        row.update(op=spec.op, flops=features["flops"], bytes_moved=features["bytes_moved"], parameters=features["parameters"])
    return Lut(path, environment, {(row["key"], setting_of(row).key): row for row in rows})


def fold_networks(
    journal: Journal, path: Path, environment: Environment, precision: float, architectures: Mapping[str, Any]
) -> None:
    """Writes the table of whole networks; `architectures` gives the values of each key (older ones are kept)."""
    known = dict(architectures)
    if path.exists():
        known = {row["key"]: json.loads(row["architecture"]) for row in read_networks(path)[0]} | known
    rows = []
    for row in summarise_journal(journal, environment, precision):
        row.pop("overhead_ns")  # a request pays for its call
        row.pop("overhead_instructions")
        space, _, genes = row["key"].rpartition("/")
        if row["key"] not in known:  # a run that was killed before its fold left the samples only
            column = np.frombuffer(bytes.fromhex(genes), np.uint8)
            known[row["key"]] = spaces.to_values(registry.get("space", space), column)
        rows.append({**row, "space": space, "architecture": json.dumps(known[row["key"]])})
    facts = {"environment": dict(environment.values), "environment_hash": environment.hash}
    schema.write(path, lut_schema.NETWORKS, rows, facts)


def read_networks(path: Path) -> tuple[list[dict[str, Any]], Environment]:
    """The measured whole networks and where they were measured."""
    data, footer = schema.read(path, lut_schema.NETWORKS)
    return data.to_pylist(), environment_of(footer, path)


def environment_of(footer: Mapping[str, Any], path: Path) -> Environment:
    """Where a table was measured, if its footer still says so consistently."""
    environment = Environment(footer.get("environment", {}))
    if environment.hash != footer.get("environment_hash"):
        raise DataError(f"{path} was edited after hwbench wrote it (environment differs); restore it or make it again.")
    return environment
