"""The host's side of measuring: starts fresh workers, interleaves their items, hands every sample on at once.

What was taken from whom stands in policy.py; what runs when, in plan.py. Items are loaded in groups that fit a memory limit;
every process goes through all groups before the next one starts, so each item is measured at several times of the run.
"""

from __future__ import annotations

import os
import select
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.device.agent.message import PROTOCOL, decode, encode
from hwbench.device.transport.base import DISCONNECTED, HUNG, REFUSED, UNREACHABLE, Transport, WorkerLost
from hwbench.device.transport.local import Local
from hwbench.lut.sample import Sample
from hwbench.profiler.plan import Item, Plan, Progress, in_groups, in_order, wants
from hwbench.profiler.policy import AGREEING, Policy

RECONNECTS_S = (0.5, 2.0, 8.0, 30.0)
"""Waits before a device that was lost is reached for again; after the last one the run ends, and can be gone on with."""


class WorkerProcess:
    """One fresh worker and its pipe."""

    def __init__(self, runtime: str, timeout_s: float, reach: Transport | None = None) -> None:
        self.token = uuid.uuid4().hex[:12]
        self._timeout_s = timeout_s
        self._reach = reach or Local()
        self._process = self._reach.start()
        try:
            self.environment = self._hello(runtime) | self._reach.environment()
        except BaseException:
            self.close(kill=True)
            raise

    def _hello(self, runtime: str) -> dict[str, Any]:
        try:
            made_of = registry.recipe("runtime", runtime)
        except UsageError as error:
            raise WorkerLost(REFUSED, str(error)) from None
        hello = self.ask({"ask": "hello", "runtime": runtime, **made_of})
        if hello["status"] != "ok":
            raise WorkerLost(REFUSED, hello["reason"])
        if hello["protocol"] != PROTOCOL:
            raise WorkerLost(REFUSED, f"worker speaks protocol {hello['protocol']}, host {PROTOCOL}")
        return dict(hello["environment"])

    def deliver(self, path: str, sha256: str) -> str:
        """Where the worker finds a file of ours.

        Raises:
            ValueError: its device cannot store the file.
            WorkerLost: it was lost on the way.
        """
        if self._reach.shares_files:
            return path
        with open(path, "rb") as stream:  # noqa: PTH123
            answer = self.ask({"ask": "put", "sha256": sha256, "bytes": os.fstat(stream.fileno()).st_size}, stream)
        if answer["status"] != "ok":
            raise ValueError(answer["reason"])
        return str(answer["path"])

    def ask(self, message: Mapping[str, Any], attached: BinaryIO | None = None) -> dict[str, Any]:
        """Sends a request, and what is attached to it, and waits for the answer.

        Raises:
            WorkerLost: the process ended or stayed silent for longer than the time-out.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, encode(message))
            for piece in iter(lambda: attached.read(1 << 20) if attached else b"", b""):
                _send(self._process.stdin, piece)
        except BrokenPipeError:
            raise self._lost() from None
        line = b""
        end = time.monotonic() + self._timeout_s
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.close(kill=True)
                raise WorkerLost(HUNG, f"no answer within {self._timeout_s:g} s")
            piece = os.read(self._process.stdout.fileno(), 1 << 20)
            if not piece:
                raise self._lost()
            line += piece
        return decode(line)

    def _lost(self) -> WorkerLost:
        return WorkerLost(*self._reach.ending(self._process.wait()))

    def close(self, kill: bool = False) -> None:
        """Ends the process and frees the pipe."""
        if kill:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()


def measure(
    items: Sequence[Item],
    plan: Plan,
    progress: Progress,
    record: Callable[[Sample, Mapping[str, Any]], None],
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Measures every item until the policy is content; calls `record(sample, environment)` for each burst.

    `tick(done, total)` counts bursts of the processes that are certain to run.
    """
    policy, taken = plan.policy, 0
    limit = float("inf") if policy.max_seconds is None else policy.max_seconds
    deadline, last = time.monotonic() + limit, time.monotonic() + policy.overtime * limit
    for process in range(policy.max_processes):
        wanted = [i for i in items if i.key not in progress.failed and wants(i, process, policy, progress)]
        if time.monotonic() > deadline and process >= policy.min_processes:
            wanted = [i for i in wanted if len(progress.levels_ns(i.key, process)) < AGREEING]
        if not wanted:
            continue
        certain = max(policy.min_processes - process - 1, 0)
        total = taken + policy.rounds * len(wanted) * (1 + certain)
        # Groups are mixed anew for every process, so that no kind of item has a time of the run to itself.
        for group, links in in_groups(in_order(wanted, policy, process, "groups"), plan.memory_limit_bytes):
            for sample, environment in _run_group(group, links, process, plan, progress, last):
                progress.note(sample)
                record(sample, environment)
                taken += 1
                tick(taken, max(total, taken))
        if plan.enough() or (process + 1 >= policy.min_processes and time.monotonic() > last):
            return


def start_up(item: Item, plan: Plan) -> dict[str, float]:
    """Loads one item alone in a fresh worker: session creation, first run, and peak memory before and after.

    Raises:
        WorkerLost: the worker crashed or hung, or the runtime refused.
    """
    worker = WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.reach)
    try:
        answer = _load(worker, item, plan.policy)
        if answer["status"] != "ok":
            raise WorkerLost(REFUSED, answer["reason"])
        return {name: answer[name] for name in ("load_ms", "first_ms", "memory_bytes", "memory_before_bytes")}
    finally:
        item.release()
        worker.close(kill=True)


def _load(worker: WorkerProcess, item: Item, policy: Policy) -> dict[str, Any]:
    """The worker's answer; a model that cannot be converted here or stored there is a refusal too."""
    try:
        path, digest = item.model()
        expected = item.expected() if item.expected else None
        there = worker.deliver(path, digest)
        outputs = expected and {"path": worker.deliver(*expected), "sha256": expected[1]}
    except ValueError as error:
        return {"status": REFUSED, "reason": str(error)}
    message = {
        "ask": "load",
        "item": item.key,
        "path": there,
        "sha256": digest,
        "policy": policy.message(),
        "setting": dict(item.setting),
        "high": dict(item.high),
        "shapes": {name: list(shape) for name, shape in item.shapes.items()},
        "expected": outputs,
    }
    return worker.ask(message)


def _send(stream: Any, data: bytes) -> None:
    """All of it: a pipe without a buffer may take a part."""
    left = memoryview(data)
    while left:
        left = left[stream.write(left) :]


def greet(plan: Plan) -> dict[str, Any]:
    """The environment of the device, told by a worker there.

    Raises:
        WorkerLost: the device cannot be reached or lacks the runtime.
    """
    worker = WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.reach)
    worker.close(kill=True)
    return worker.environment


def _connect(plan: Plan) -> WorkerProcess:
    """A fresh worker; a device that does not answer is tried again for a while.

    Raises:
        WorkerLost: it refused, or is still not there after the last try.
    """
    for wait_s in (*RECONNECTS_S, None):
        try:
            return WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.reach)
        except WorkerLost as lost:
            if lost.status not in (DISCONNECTED, UNREACHABLE) or wait_s is None:
                raise
            time.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def _run_group(
    group: Sequence[Item], links: Sequence[Item], process: int, plan: Plan, progress: Progress, deadline: float
) -> Iterator[tuple[Sample, Mapping[str, Any]]]:
    """One fresh worker for one group; when it is lost, the item at fault is recorded and a new one goes on.

    Where only the connection was lost nothing is recorded: a new worker goes on with what is left to do.
    """
    policy = plan.policy
    linked = {item.key for item in links}
    pending = [*(i for i in links if i.key not in progress.failed), *group]

    def left(item: Item, number: int) -> int | None:
        """The round to store it under, if it is still to do: links follow behind the rounds of their own group."""
        place = number + (policy.rounds if item.key in linked else 0)
        done = item.key in progress.failed or (process, place) in progress.done.get(item.key, set())
        return None if done else place

    barren = 0
    """Workers lost in a row with their connection, before they brought anything."""
    while pending:
        try:
            worker = _connect(plan)
        except WorkerLost as lost:
            if lost.status in (DISCONNECTED, UNREACHABLE):
                raise
            for item in group:
                yield Sample(item.key, process, -1, "", lost.status, reason=str(lost)), {}
            return
        current: Item | None = None
        try:
            loaded: dict[str, dict[str, Any]] = {}
            for item in [*plan.references, *pending]:
                current = item
                answer = _load(worker, item, policy)
                item.release()
                if answer["status"] == "ok":
                    loaded[item.key] = answer
                elif item in plan.references:
                    raise WorkerLost(REFUSED, f"{item.key}, which every measurement needs: {answer['reason']}")
                else:
                    yield Sample(item.key, process, -1, worker.token, REFUSED, reason=answer["reason"]), worker.environment
            pending = [i for i in pending if i.key in loaded]
            for number in range(policy.rounds):
                if number and process >= policy.min_processes and time.monotonic() > deadline:
                    break
                for item in in_order(pending, policy, process, str(number)):
                    place = left(item, number)
                    if place is None:
                        continue
                    current = item
                    usual = progress.best_canaries_ns[-1] if progress.best_canaries_ns else None
                    answer = worker.ask({"ask": "sample", "item": item.key, "policy": policy.message(), "usual_ns": usual})
                    if answer["status"] != "ok":
                        refused = Sample(item.key, process, number, worker.token, REFUSED, reason=answer["reason"])
                        yield refused, worker.environment
                        continue
                    where = (item.key, process, place, worker.token)
                    barren = -1
                    yield _sample(where, answer, loaded[item.key], item.key in linked), worker.environment
            pending = []
        except WorkerLost as lost:
            assert current is not None
            current.release()
            if lost.status == DISCONNECTED and (barren := barren + 1) < len(RECONNECTS_S):
                continue
            if lost.status == DISCONNECTED:
                raise
            at_fault = group if current in plan.references else [current]
            for item in at_fault:
                yield Sample(item.key, process, -1, worker.token, lost.status, reason=str(lost)), worker.environment
            pending = [i for i in pending if i not in at_fault and i.key not in progress.failed]
            if current in plan.references:
                return
        finally:
            worker.close(kill=True)


def _sample(where: tuple[str, int, int, str], answer: Mapping[str, Any], facts: Mapping[str, Any], link: bool) -> Sample:
    """A burst from a worker's answer; a count of instructions has no times, not even those of loading."""
    if "instructions" in answer:
        counted = tuple(answer["instructions"])
        return Sample(
            *where,
            "ok",
            inner=answer["inner"],
            instructions=counted,
            empty_instructions=answer["empty_instructions"],
            link=link,
        )
    return Sample(
        *where, "ok", tuple(answer["readings_ns"]), answer["inner"], answer["canary_ns"], answer["empty_ns"],
        answer["other_cores"], answer["throttled"], extra_ns=tuple(answer["extra_ns"]), link=link,
        load_ms=facts["load_ms"], first_ms=facts["first_ms"],
    )  # fmt: skip
