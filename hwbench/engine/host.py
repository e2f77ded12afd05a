"""The host's side of measuring: starts fresh workers, interleaves their items, hands every sample on at once.

What was taken from whom: fresh processes (pyperf), random interleaving (google/benchmark), a stop rule on
agreement rather than on a fixed count (torch `adaptive_autorange`), but between processes: medians on shared
machines move by 25 %, minima of fresh, interleaved processes repeat within half a percent.

The plan is fixed by the seed: in process p, round r, items run in the order drawn from (seed, p, r). What
has been taken before (`done`) is skipped, so a killed run and its continuation together do what one run
would have done. Items are loaded in groups that fit a memory limit; every process goes through all groups
before the next one starts, so each item is measured at several times of the run.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hwbench.engine.message import PROTOCOL, decode, encode
from hwbench.engine.policy import Policy

MEMORY_LIMIT_BYTES = 2_000_000_000


class WorkerLost(Exception):
    """The worker crashed or hung; `status` says which."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class WorkerProcess:
    """One fresh worker and its pipe."""

    def __init__(self, runtime: str, timeout_s: float) -> None:
        self.token = uuid.uuid4().hex[:12]
        self._timeout_s = timeout_s
        command = [sys.executable, "-m", "hwbench.engine.worker"]
        # Pools of other libraries would idle beside the measurement.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        # A session of its own: Ctrl-C in a terminal is the host's to answer.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0, start_new_session=True
        )
        try:
            self.environment = self._hello(runtime)
        except BaseException:
            self.close(kill=True)
            raise

    def _hello(self, runtime: str) -> dict[str, Any]:
        hello = self.ask({"ask": "hello", "runtime": runtime})
        if hello["status"] != "ok":
            raise WorkerLost("refused", hello["reason"])
        if hello["protocol"] != PROTOCOL:
            raise WorkerLost("refused", f"worker speaks protocol {hello['protocol']}, host {PROTOCOL}")
        return dict(hello["environment"])

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for its answer.

        Raises:
            WorkerLost: the process ended or stayed silent for longer than the time-out.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(encode(message))
        except BrokenPipeError:
            raise WorkerLost("crashed", self._ending()) from None
        line = b""
        end = time.monotonic() + self._timeout_s
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.close(kill=True)
                raise WorkerLost("hung", f"no answer within {self._timeout_s:g} s")
            piece = os.read(self._process.stdout.fileno(), 1 << 20)
            if not piece:
                raise WorkerLost("crashed", self._ending())
            line += piece
        return decode(line)

    def _ending(self) -> str:
        code = self._process.wait()
        return f"worker ended by signal {-code}" if code < 0 else f"worker ended with code {code}"

    def close(self, kill: bool = False) -> None:
        """Ends the process and frees the pipe."""
        if kill:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()


@dataclass(frozen=True)
class Item:
    """Something to measure: an ONNX model under a setting."""

    key: str
    setting: Mapping[str, Any]
    model: Callable[[], tuple[str, str]] = field(repr=False)
    """Writes the model when it is needed; returns (path, sha256)."""
    high: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 0
    """Estimate of what a loaded session takes."""
    release: Callable[[], None] = field(default=lambda: None, repr=False)
    """Called when the model file is no longer needed for now."""


@dataclass(frozen=True)
class Sample:
    """What one round of one item gave; `status` other than ok carries a reason instead of samples."""

    key: str
    process: int
    round: int
    worker: str
    status: str
    samples_ns: tuple[float, ...] = ()
    inner: int = 0
    load_ms: float | None = None
    first_ms: float | None = None
    reason: str | None = None


@dataclass
class Progress:
    """What is known of each item so far: filled from the journal, then as samples arrive."""

    done: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """key -> (process, round) taken."""
    minima_ns: dict[str, dict[int, float]] = field(default_factory=dict)
    """key -> process -> smallest sample."""
    failed: set[str] = field(default_factory=set)

    def note(self, sample: Sample) -> None:
        """Takes a sample into account."""
        if sample.status != "ok":
            self.failed.add(sample.key)
            return
        self.done.setdefault(sample.key, set()).add((sample.process, sample.round))
        minima = self.minima_ns.setdefault(sample.key, {})
        minima[sample.process] = min(minima.get(sample.process, float("inf")), min(sample.samples_ns))


def measure(
    items: Sequence[Item],
    policy: Policy,
    runtime: str,
    progress: Progress,
    record: Callable[[Sample, Mapping[str, Any]], None],
    tick: Callable[[int, int], None] = lambda done, total: None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
) -> None:
    """Measures every item until the policy is content; calls `record(sample, environment)` for each round.

    `tick(done, total)` counts rounds of the processes that are certain to run.
    """
    taken = 0
    for process in range(policy.max_processes):
        wanted = [i for i in items if i.key not in progress.failed and _wants(i, process, policy, progress)]
        if not wanted:
            continue
        certain = max(policy.min_processes - process - 1, 0)
        total = taken + policy.rounds * len(wanted) * (1 + certain)
        # Groups are mixed anew for every process, so that no kind of item has a time of the run to itself.
        for group in _groups(_order(wanted, f"{policy.seed}/{process}/groups"), memory_limit_bytes):
            for sample, environment in _run_group(group, process, policy, runtime, progress):
                progress.note(sample)
                record(sample, environment)
                taken += 1
                tick(taken, max(total, taken))


def _wants(item: Item, process: int, policy: Policy, progress: Progress) -> bool:
    """Whether the plan has rounds of this process left for the item, judged by earlier processes only."""
    minima = progress.minima_ns.get(item.key, {})
    if process >= policy.min_processes and policy.reached([m for p, m in minima.items() if p < process]):
        return False
    done = progress.done.get(item.key, set())
    return any((process, r) not in done for r in range(policy.rounds))


def _groups(items: Sequence[Item], limit: int) -> list[list[Item]]:
    groups: list[list[Item]] = [[]]
    used = 0
    for item in items:
        if groups[-1] and used + item.memory_bytes > limit:
            groups.append([])
            used = 0
        groups[-1].append(item)
        used += item.memory_bytes
    return groups


def _order(items: Sequence[Item], drawn_from: str) -> list[Item]:
    """Random, but the same whichever of the items are left to do."""
    return sorted(items, key=lambda item: random.Random(f"{drawn_from}/{item.key}").random())


def _run_group(
    group: Sequence[Item], process: int, policy: Policy, runtime: str, progress: Progress
) -> Iterator[tuple[Sample, Mapping[str, Any]]]:
    """One fresh worker for one group; when it is lost, the item at fault is recorded and a new one goes on."""
    pending = list(group)
    while pending:
        try:
            worker = WorkerProcess(runtime, policy.timeout_s)
        except WorkerLost as lost:
            for item in pending:
                yield Sample(item.key, process, -1, "", lost.status, reason=str(lost)), {}
            return
        current: Item | None = None
        try:
            loaded: dict[str, dict[str, Any]] = {}
            for item in pending:
                current = item
                path, digest = item.model()
                message = {"ask": "load", "item": item.key, "path": path, "sha256": digest, "policy": policy.message()}
                answer = worker.ask({**message, "setting": dict(item.setting), "high": dict(item.high)})
                item.release()
                if answer["status"] == "ok":
                    loaded[item.key] = answer
                else:
                    yield Sample(item.key, process, -1, worker.token, "refused", reason=answer["reason"]), worker.environment
            pending = [i for i in pending if i.key in loaded]
            for number in range(policy.rounds):
                for item in _order(pending, f"{policy.seed}/{process}/{number}"):
                    if item.key in progress.failed or (process, number) in progress.done.get(item.key, set()):
                        continue
                    current = item
                    answer = worker.ask({"ask": "sample", "item": item.key, "policy": policy.message()})
                    if answer["status"] != "ok":
                        refused = Sample(item.key, process, number, worker.token, "refused", reason=answer["reason"])
                        yield refused, worker.environment
                        continue
                    facts = loaded[item.key]
                    yield (
                        Sample(
                            item.key, process, number, worker.token, "ok", tuple(answer["samples_ns"]), answer["inner"],
                            facts["load_ms"], facts["first_ms"],
                        ),
                        worker.environment,
                    )  # fmt: skip
            pending = []
        except WorkerLost as lost:
            assert current is not None
            current.release()
            yield Sample(current.key, process, -1, worker.token, lost.status, reason=str(lost)), worker.environment
            pending = [i for i in pending if i is not current and i.key not in progress.failed]
        finally:
            worker.close(kill=True)
