"""From the journal to a table: every burst of a row becomes two statistics, a verdict and its reason.

Only samples of one environment are folded together, and of each row the newest edition that counts. What an empty call costs
is taken off an op's latency, as in a network the op is not called on its own. Latencies in ms, samples in ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core.progress import step
from hwbench.device.agent.environment import UNSAID, Environment
from hwbench.lut import latency, verdict
from hwbench.lut.journal import Entry, Journal
from hwbench.lut.key_columns import key_columns
from hwbench.lut.sample import Measurement, Sample
from hwbench.lut.table import INSTRUCTIONS, Lut, parse_setting, setting_of
from hwbench.network import work as ops
from hwbench.network.spec import OpSpec, Setting


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
    measured_at: dict[tuple[str, str], str] = {}
    for entry in entries:
        identity = (entry.sample.key, entry.setting)
        if wanted.get(identity) == entry.edition:
            groups.setdefault(identity, []).append(entry.sample)
            measured_at[identity] = max(entry.taken_at, measured_at.get(identity, ""))
    everything = {at: [s for (_, a), samples in groups.items() if a == at for s in samples] for at in {a for _, a in groups}}
    speeds = {at: _Speed(samples) for at, samples in everything.items()}
    on = environment.values.get("executes_on", UNSAID["executes_on"])
    origin = {"executes_on": on, "runtime": environment.values.get("runtime"), "device": journal.path.parent.name}
    return [
        {**_row(key, parse_setting(at), samples, precision, speeds[at]), **origin, "measured_at": measured_at[key, at]}
        for (key, at), samples in groups.items()
    ]


def newest_editions(entries: Iterable[Entry]) -> dict[tuple[str, str], int]:
    """(key, setting key) -> the edition that counts: the newest with three processes, or with as many as an older one.

    So an edition that failed or was interrupted does not hide a good one.
    """
    processes: dict[tuple[str, str], dict[int, set[int]]] = {}
    for entry in entries:
        taken = processes.setdefault((entry.sample.key, entry.setting), {}).setdefault(entry.edition, set())
        if entry.sample.status == "ok":
            taken.add(entry.sample.process)
    newest = {}
    for identity, by_edition in processes.items():
        enough = min(3, max(map(len, by_edition.values())))
        newest[identity] = max(edition for edition, taken in by_edition.items() if len(taken) >= enough)
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
    summary = latency.summarise(seen.bursts_ns, seen.extra_ns)
    seen_by = processes(samples)
    judged = verdict.judge(seen_by, precision, speed.steady_ns, speed.shifts)
    others = [p.other_cores for p in seen_by if p.other_cores is not None]
    return {
        **row, "latency_min_ms": summary.min_ms, "latency_median_ms": summary.median_ms, "min_spread": summary.min_spread,
        "median_spread": summary.median_spread, "latency_fastest_ms": summary.fastest_ms,
        "median_low_ms": summary.median_low_ms, "median_high_ms": summary.median_high_ms, "samples": summary.samples,
        "status": "ok", "verdict": judged.word,
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


@step("folding the journal to a table")
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
        row.update({name: features[name] for name in ("flops", "bytes_moved", "parameters")}, **key_columns(spec))
    return Lut(path, environment, {(row["key"], setting_of(row).key): row for row in rows})
