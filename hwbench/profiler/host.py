"""The host's side of measuring: starts fresh workers, interleaves their items, hands every sample on at once.

What was taken from whom stands in policy.py; what runs when, in plan.py. Items are loaded in groups that fit a memory limit;
every process goes through all groups before the next one starts, so each item is measured at several times of the run.
"""

from __future__ import annotations

import os
import select
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, BinaryIO

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.progress import Tick, no_tick, step
from hwbench.device.agent.message import PROTOCOL, encode
from hwbench.device.transport.base import DISCONNECTED, HUNG, REFUSED, UNREACHABLE, Transport, WorkerLost
from hwbench.device.transport.local import Local
from hwbench.lut.sample import Sample, StartUp
from hwbench.profiler import answers, turns
from hwbench.profiler.plan import Item, Plan, Progress, in_groups, in_order, wants
from hwbench.profiler.policy import AGREEING, Policy

RECONNECTS_S = (0.5, 2.0, 8.0, 30.0)
"""Waits before a device that was lost is reached for again; after the last one the run ends, and can be gone on with."""


class WorkerProcess:
    """One fresh worker and its pipe."""

    def __init__(self, runtime: str, timeout_s: float, transport: Transport | None = None) -> None:
        self.token = uuid.uuid4().hex[:12]
        self._timeout_s = timeout_s
        self._transport = transport or Local()
        self._process = self._transport.start()
        try:
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)  # or a worker that takes nothing in would stop us, too
            self.environment = self._hello(runtime) | self._transport.environment()
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
        if self._transport.shares_files:
            return path
        with open(path, "rb") as stream:  # noqa: PTH123
            answer = self.ask({"ask": "put", "sha256": sha256, "bytes": os.fstat(stream.fileno()).st_size}, stream)
        if answer["status"] != "ok":
            raise ValueError(answer["reason"])
        return str(answer["path"])

    def ask(self, message: Mapping[str, Any], attached: BinaryIO | None = None) -> dict[str, Any]:
        """Sends a request, and what is attached to it, and waits for the answer.

        Raises:
            WorkerLost: the process ended, stayed silent for longer than the time-out, or answered what is no answer.
        """
        try:
            self._send(encode(message))
            for piece in iter(lambda: attached.read(1 << 20) if attached else b"", b""):
                self._send(piece)
        except BrokenPipeError:
            raise self._lost() from None
        try:
            return answers.checked(str(message.get("ask")), self._line())
        except WorkerLost:
            self.close(kill=True)
            raise

    def _send(self, data: bytes) -> None:
        """All of it, as the worker takes it in."""
        assert self._process.stdin is not None
        pipe, left = self._process.stdin.fileno(), memoryview(data)
        while left:
            if not select.select([], [pipe], [], self._timeout_s)[1]:
                self.close(kill=True)
                raise WorkerLost(HUNG, f"it took in nothing for {self._timeout_s:g} s")
            with suppress(BlockingIOError):
                left = left[os.write(pipe, left) :]

    def _line(self) -> bytes:
        """What the worker writes up to a line's end, within the time and the length that an answer may take."""
        assert self._process.stdout is not None
        pipe, line, end = self._process.stdout.fileno(), bytearray(), time.monotonic() + self._timeout_s
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise WorkerLost(HUNG, f"no answer within {self._timeout_s:g} s")
            piece = os.read(pipe, 1 << 20)
            if not piece:
                raise self._lost()
            line += piece
            if len(line) > answers.LONGEST_BYTES:
                raise answers.garbled(f"it is longer than {answers.LONGEST_BYTES} bytes")
        return bytes(line)

    def _lost(self) -> WorkerLost:
        return WorkerLost(*self._transport.ending(self._process.wait()))

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
    tick: Tick = no_tick,
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
            with turns.turn() as waited_s:
                deadline, last = deadline + waited_s, last + waited_s
                for sample, environment in _GroupRun(group, links, process, plan, progress, last).samples():
                    progress.note(sample)
                    record(sample, environment)
                    taken += 1
                    tick(taken, max(total, taken))
        if plan.enough() or (process + 1 >= policy.min_processes and time.monotonic() > last):
            return


def start_up(item: Item, plan: Plan) -> StartUp:
    """Loads one item alone in a fresh worker.

    Raises:
        WorkerLost: the worker crashed or hung, or the runtime refused.
    """
    worker = WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.transport)
    try:
        answer = load(worker, item, plan.policy)
        if answer["status"] != "ok":
            raise WorkerLost(REFUSED, answer["reason"])
        return StartUp(**{each.name: answer[each.name] for each in fields(StartUp) if each.name in answer})
    finally:
        item.release()
        worker.close(kill=True)


def load(worker: WorkerProcess, item: Item, policy: Policy, ask: str = "load") -> dict[str, Any]:
    """The worker's answer; a model that cannot be converted here or stored there is a refusal too."""
    try:
        path, digest = item.model()
        expected = item.expected() if item.expected else None
        there = worker.deliver(path, digest)
        outputs = expected and {"path": worker.deliver(*expected), "sha256": expected[1]}
    except ValueError as error:
        return {"status": REFUSED, "reason": str(error)}
    message = {
        "ask": ask,
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


def greet(plan: Plan) -> dict[str, Any]:
    """The environment of the device, as a worker there reports it.

    Raises:
        WorkerLost: the device cannot be reached or lacks the runtime.
    """
    worker = WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.transport)
    worker.close(kill=True)
    return worker.environment


def _connect(plan: Plan) -> WorkerProcess:
    """A fresh worker; a device that does not answer is tried again for a while.

    Raises:
        WorkerLost: it refused, or is still not there after the last try.
    """
    for wait_s in (*RECONNECTS_S, None):
        try:
            return plan.start() if plan.start else WorkerProcess(plan.runtime, plan.policy.timeout_s, plan.transport)
        except WorkerLost as lost:
            if lost.status not in (DISCONNECTED, UNREACHABLE) or wait_s is None:
                raise
            with step("the device is gone, reaching for it again"):
                time.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


Taken = tuple[Sample, Mapping[str, Any]]
"""A sample and the environment of the worker that took it; empty where no worker started."""


class _GroupRun:
    """One group of items in one process of the plan.

    That takes one fresh worker. When a worker is lost, the item at fault is recorded and a new worker goes on with the others;
    where only the connection was lost nothing is recorded, and a new worker goes on with all that is left to do.
    """

    def __init__(
        self, group: Sequence[Item], links: Sequence[Item], process: int, plan: Plan, progress: Progress, deadline: float
    ) -> None:
        self._group, self._process, self._plan, self._progress, self._deadline = group, process, plan, progress, deadline
        self._linked = {item.key for item in links}
        self._pending = [*(i for i in links if i.key not in progress.failed), *group]
        self._current: Item | None = None
        """What the worker is busy with: it is at fault where the worker ends."""
        self._sampled = False
        """Whether the worker has brought a sample."""
        self._lost_without_sample = 0
        """Connections lost in a row before their worker brought a sample."""

    def samples(self) -> Iterator[Taken]:
        """Everything that is left to take, as it is taken.

        Raises:
            WorkerLost: the device cannot be reached any more.
        """
        while self._pending:
            try:
                worker = _connect(self._plan)
            except WorkerLost as lost:
                if lost.status in (DISCONNECTED, UNREACHABLE):
                    raise
                yield from ((self._failure(item, "", lost.status, str(lost)), {}) for item in self._group)
                return
            self._sampled = False
            try:
                yield from self._take(worker)
            except WorkerLost as lost:
                assert self._current is not None
                self._current.release()
                if lost.status == DISCONNECTED:
                    self._count_lost_connection(lost)
                else:
                    yield from self._blame(self._current, worker, lost)
            finally:
                worker.close(kill=True)

    def _take(self, worker: WorkerProcess) -> Iterator[Taken]:
        """All rounds of all pending items by one worker."""
        loaded = yield from self._load_all(worker)
        self._pending = [item for item in self._pending if item.key in loaded]
        policy, process = self._plan.policy, self._process
        for number in range(policy.rounds):
            if number and process >= policy.min_processes and time.monotonic() > self._deadline:
                break
            for item in in_order(self._pending, policy, process, str(number)):
                # Links are stored behind the rounds of their own group.
                place = number + (policy.rounds if item.key in self._linked else 0)
                taken = self._progress.done.get(item.key, set())
                if item.key not in self._progress.failed and (process, place) not in taken:
                    yield self._burst(worker, item, number, place, loaded[item.key]), worker.environment
        self._pending = []

    def _load_all(self, worker: WorkerProcess) -> Generator[Taken, None, dict[str, Mapping[str, Any]]]:
        """Key -> what loading took, of every item the worker accepts; the others are failures."""
        loaded: dict[str, Mapping[str, Any]] = {}
        wanted = [*self._plan.references, *self._pending]
        for at, item in enumerate(wanted, start=1):
            self._current = item
            with step(f"loading {at} of {len(wanted)}"):
                answer = load(worker, item, self._plan.policy)
            item.release()
            if answer["status"] == "ok":
                loaded[item.key] = answer
            elif item in self._plan.references:
                raise WorkerLost(REFUSED, f"{item.key}, which every measurement needs: {answer['reason']}")
            else:
                yield self._failure(item, worker.token, REFUSED, answer["reason"]), worker.environment
        return loaded

    def _burst(self, worker: WorkerProcess, item: Item, number: int, place: int, facts: Mapping[str, Any]) -> Sample:
        self._current = item
        best = self._progress.best_canaries_ns
        usual = best[-1] if best else None
        message = {"ask": "sample", "item": item.key, "policy": self._plan.policy.message(), "usual_ns": usual}
        answer = worker.ask(message)
        if answer["status"] != "ok":
            return self._failure(item, worker.token, REFUSED, answer["reason"], number)
        self._sampled = True
        where = (item.key, self._process, place, worker.token)
        sample = _sample(where, _each(answer, item.copies), facts, item.key in self._linked)
        if (complaint := sample.complaint()) is not None:
            raise answers.garbled(complaint)
        return sample

    def _failure(self, item: Item, worker: str, status: str, reason: str, number: int = -1) -> Sample:
        return Sample(item.key, self._process, number, worker, status, reason=reason)

    def _count_lost_connection(self, lost: WorkerLost) -> None:
        """Raises when too many workers in a row were lost before they brought a sample."""
        self._lost_without_sample = 0 if self._sampled else self._lost_without_sample + 1
        if self._lost_without_sample >= len(RECONNECTS_S):
            raise lost

    def _blame(self, item: Item, worker: WorkerProcess, lost: WorkerLost) -> Iterator[Taken]:
        """Records the item that ended its worker; without the canary or the empty call the whole group fails."""
        needed = item in self._plan.references
        at_fault = list(self._group) if needed else [item]
        for each in at_fault:
            yield self._failure(each, worker.token, lost.status, str(lost)), worker.environment
        failed = self._progress.failed
        self._pending = [] if needed else [i for i in self._pending if i not in at_fault and i.key not in failed]


def _each(answer: Mapping[str, Any], copies: int) -> Mapping[str, Any]:
    """What one copy took, where the model holds several."""
    if copies == 1:
        return answer
    taken = {name: [each / copies for each in answer[name]] for name in ("readings_ns", "extra_ns") if name in answer}
    if "instructions" in answer:
        taken["instructions"] = [round(each / copies) for each in answer["instructions"]]
    return {**answer, **taken, "inner": answer["inner"] * copies}


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
