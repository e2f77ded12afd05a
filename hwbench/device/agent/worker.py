"""The measuring worker (`python -m hwbench.device.agent.worker`): reads one request per line, answers one line.

Imports the standard library, numpy and the runtime asked for, nothing else, so that the same files run on
a device with Python 3.9. Whatever native libraries print goes to stderr; the answers have the pipe alone.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import hashlib
import importlib
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, BinaryIO

import numpy as np

from hwbench.device.agent import counter, environment, machine
from hwbench.device.agent.message import CANARY, EMPTY, PROTOCOL, decode, encode
from hwbench.runtime.base import difference

SETTLE_NS = 2_000_000
"""Caches and clocks come back to an item within milliseconds after others ran; levels bear the rest."""
STEADY = 0.02
"""Warm-up ends when two spans of it agree that well."""
EMPTY_NS = 500_000
FIRST_CANARIES = 10
PATIENCE = 10
"""A burst whose readings are far apart (paced, cold) ends after that many times its length on the clock."""
MOST_JUMPS = 100
REST_NS, REST_LIMIT_NS = 6_000_000, 200_000_000
"""Threads are at rest when they took next to nothing of such a span: the kernel counts their time in steps of 4 ms."""
TOLERANCES = {"fp32": 1e-3, "fp16": 1e-2, "int8": 5e-2}
"""Largest difference from the expected outputs, as a share of their largest value, before a runtime is called wrong."""
KERNEL_RUNS = 12
"""Under the profiler; the shortest time of each kernel counts."""
COUNTED, UNCOUNTED, UNCOUNTED_EMPTY = 2, 1, 16
"""Runs whose instructions are counted in a sample. Before them go that many times as many that are not, since the first ones
still allocate and choose; and more of the empty call, which is loaded first: Python adapts the code all runs share."""


class Loaded:
    """A session with what is needed to take readings of it."""

    def __init__(self, session: Any, scenario: str, threads: int = 1) -> None:
        self.session = session
        self.run: Callable[[], None] = session.run
        self.threads = threads
        self.elapsed_ns: Callable[[], float] | None = getattr(session, "elapsed_ns", None)
        """The device's own clock for the last run, where it has one (CUDA events)."""
        self.before: Callable[[], None] | None = _preparation(scenario)
        self.fastest_ns = 1
        self.inner = 1
        self.undisturbed = False
        """Whether a burst of it met the machine at its usual speed, which is enough for a level."""

    def count(self, counting: counter.Counter) -> list[int]:
        """Instructions of some runs, one by one."""
        found = []
        for _ in range(COUNTED):
            counting.start()
            self.run()
            found.append(counting.stop())
        return found

    def warm_up(self, policy: Mapping[str, Any]) -> None:
        """Runs until two spans agree; learns how many runs fill a reading."""
        span_ns, limit_ns = policy["warmup_ms"] * 1e6, policy["warmup_limit_ms"] * 1e6
        medians: list[float] = []
        spent = 0.0
        while len(medians) < 2 or (spent < limit_ns and medians[-2] > (1 + STEADY) * medians[-1]):
            readings = self.readings(span_ns, 1)
            spent += sum(readings)
            medians.append(statistics.median(readings))
            self.fastest_ns = max(1, int(min(medians)))
        if self.before is None and self.elapsed_ns is None:
            self.inner = max(1, math.ceil(policy["reading_ms"] * 1e6 / self.fastest_ns))

    def readings(self, until_ns: float, least: int, most: int = 1 << 30) -> list[float]:
        """Consecutive readings that together take that long, within these numbers: nanoseconds per run."""
        run, before, inner, loop = self.run, self.before, self.inner, range(self.inner)
        taken: list[float] = []
        spent, jumps, end = 0.0, 0, perf_counter_ns() + PATIENCE * until_ns
        while len(taken) < least or (spent < until_ns and len(taken) < most and perf_counter_ns() < end):
            if before is not None:
                before()
            start = perf_counter_ns()
            for _ in loop:
                run()
            took = perf_counter_ns() - start if self.elapsed_ns is None else self.elapsed_ns()
            if took <= 0:  # a clock that went back says nothing of the run
                jumps += 1
                if jumps > MOST_JUMPS:
                    raise ValueError("the machine's clock keeps going backwards")
                continue
            spent += took
            taken.append(took / inner)
        return taken

    def burst(self, policy: Mapping[str, Any]) -> list[float]:
        """Consecutive readings as the policy asks for, after settling."""
        self.settle()
        return self.readings(policy["burst_ms"] * 1e6, policy["burst_readings"], policy["most_readings"])

    def settle(self) -> None:
        """Brings caches and clocks back to this item; what runs longer than that settles in its first reading."""
        settled = 0.0
        while settled < SETTLE_NS and self.fastest_ns < SETTLE_NS:
            self.run()
            settled += self.fastest_ns


@functools.cache  # one buffer for all items: it is as large as the caches
def _preparation(scenario: str) -> Callable[[], None] | None:
    """What happens before every run: nothing (back-to-back), an idle gap (paced-20ms), emptied caches (cold)."""
    if scenario == "cold":
        buffer = np.zeros(machine.eviction_bytes() // 8)

        def evict() -> None:
            np.add(buffer, 1.0, out=buffer)

        return evict
    if scenario.startswith("paced-"):
        gap_s = float(scenario[len("paced-") : -len("ms")]) / 1e3
        return lambda: time.sleep(gap_s)
    return None


SET_PARENT_DEATH_SIGNAL = 1
"""Of Linux's prctl."""


class Worker:
    """Holds the loaded sessions of one process."""

    def __init__(self) -> None:
        self._runtime: Any = None
        self._counter = counter.find()
        """Counts instructions instead of time, where this process is emulated."""
        self._scratch: Any = None
        """Folder of what was put here; gone with this process."""
        self._items: dict[str, Loaded] = {}
        self._canaries: list[float] = []
        """The two best canary times of this process."""
        self._spinning = False
        """Whether threads of a model that ran on several may still be turning."""

    def answer(self, message: Mapping[str, Any], requests: BinaryIO | None = None) -> dict[str, Any]:
        """The answer to one request, which may attach what follows it in the pipe; a refusal comes back as a reason."""
        handlers = {
            "hello": self._hello, "load": self._load, "sample": self._sample, "change": self._change, "kernels": self._kernels,
        }  # fmt: skip
        handler = handlers.get(message.get("ask", ""))
        try:
            if message.get("ask") == "put" and requests is not None:
                return self._put(message, requests)
            if handler is None:
                return {"status": "refused", "reason": f"unknown request {message.get('ask')!r}"}
            return handler(message)
        except MemoryError:
            return {"status": "refused", "reason": "out of memory"}
        except Exception as error:  # runtimes raise whatever they like; all of it is an answer
            return {"status": "refused", "reason": str(error).splitlines()[0] if str(error) else type(error).__name__}

    def _hello(self, message: Mapping[str, Any]) -> dict[str, Any]:
        module, _, name = message["class"].partition(":")
        self._runtime = getattr(importlib.import_module(module), name)(**message["arguments"])
        found = environment.collect(message["runtime"], self._runtime.version(), self._runtime.executes_on())
        return {"status": "ok", "protocol": PROTOCOL, "environment": dict(found.values)}

    def _put(self, message: Mapping[str, Any], requests: BinaryIO) -> dict[str, Any]:
        """Keeps a file that follows in the pipe; all of it is read whatever happens, so that the next request is found."""
        left, error = int(message["bytes"]), None
        digest = hashlib.sha256()
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="hwbench-")
        path = os.path.join(self._scratch.name, message["sha256"])  # noqa: PTH118
        with open(path, "wb") as stream:  # noqa: PTH123
            while left:
                piece = requests.read(min(left, 1 << 20))
                if not piece:
                    raise ValueError("the pipe ended within a file")
                left -= len(piece)
                digest.update(piece)
                try:
                    if error is None:
                        stream.write(piece)
                        stream.flush()
                except OSError as refused:
                    error = refused
        if error is not None:
            os.unlink(path)  # noqa: PTH108
            raise ValueError(f"the device cannot store a file of {message['bytes']} bytes: {error.strerror}")
        if digest.hexdigest() != message["sha256"]:
            raise ValueError("a file arrived changed (hash differs)")
        return {"status": "ok", "path": path}

    def _load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        path, setting = message["path"], message["setting"]
        memory_before = machine.peak_memory_bytes()  # nothing of the model was read here yet
        _check_hash(path, message["sha256"])
        self._rest()
        start = perf_counter_ns()
        session = self._runtime.load(path, setting, message["high"], message["shapes"])
        created = perf_counter_ns()
        session.run()
        first = perf_counter_ns()
        outputs_off = self._check_outputs(session, message.get("expected"), setting)
        session.keep_outputs()
        loaded = Loaded(session, setting["scenario"], setting["threads"])
        self._spinning = loaded.threads > 1
        if self._counter is None:
            loaded.warm_up(message["policy"])
        else:
            for _ in range(UNCOUNTED_EMPTY if message["item"] == EMPTY else UNCOUNTED):
                loaded.count(self._counter)
        self._items[message["item"]] = loaded
        self._forget(path)
        if message["item"] == CANARY:  # a first idea of how fast this machine usually is
            for _ in range(FIRST_CANARIES):
                self._canary(message["policy"])
        return {
            "status": "ok",
            "load_ms": (created - start) / 1e6,
            "first_ms": (first - created) / 1e6,
            "inner": loaded.inner,
            "memory_bytes": machine.peak_memory_bytes(),
            "memory_before_bytes": memory_before,
            "computes": getattr(session, "computes", ""),
            "outputs_off": outputs_off,
        }

    def _check_outputs(self, session: Any, expected: Any, setting: Mapping[str, Any]) -> float | None:
        """Refuses a runtime whose first result is not what was expected; how far it lies from that."""
        if expected is None:
            return None
        _check_hash(expected["path"], expected["sha256"])
        with np.load(expected["path"], allow_pickle=False) as stored:
            wanted = [stored[name] for name in stored.files]
        self._forget(expected["path"])
        off, allowed = difference(session.outputs(), wanted), TOLERANCES[setting["dtype"]]
        if not off <= allowed:
            raise ValueError(
                f"wrong result: outputs differ from onnxruntime's by {off:.2g} of their largest value (allowed {allowed:g}); "
                "not measured"
            )
        return off

    def _forget(self, path: str) -> None:
        """Frees the device's disk of a file that was put here; a loaded model needs it no more."""
        if self._scratch is not None and path.startswith(self._scratch.name):
            os.unlink(path)  # noqa: PTH108

    def _count(self, item: Loaded) -> dict[str, Any]:
        assert self._counter is not None
        empty = self._items[EMPTY].count(self._counter) if EMPTY in self._items else None
        return {
            "status": "ok",
            "inner": 1,
            "instructions": item.count(self._counter),
            "empty_instructions": None if empty is None else min(empty),
        }

    def _sample(self, message: Mapping[str, Any]) -> dict[str, Any]:
        item, policy = self._items[message["item"]], message["policy"]
        if self._counter is not None:
            return self._count(item)
        usual_ns = message.get("usual_ns")  # what earlier processes of the run saw, should this one start on a slow machine
        if usual_ns is not None:
            self._canaries = sorted([*self._canaries, usual_ns, usual_ns])[:2]
        watch = machine.Watch()
        before = self._canary(policy)
        empty = self._reference(EMPTY, EMPTY_NS)
        readings, canary = self._burst(item, before, policy)
        extra: list[float] = []
        if canary is not None and self._is_slow(canary, policy) and not item.undisturbed:
            extra, canary = self._undisturbed(item, canary, policy)
        item.undisturbed = item.undisturbed or canary is None or not self._is_slow(canary, policy)
        return {
            "status": "ok",
            "inner": item.inner,
            "readings_ns": readings,
            "extra_ns": extra,
            "canary_ns": canary,
            "empty_ns": empty,
            **watch.stop(),
        }

    def _change(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One run at each of many shapes, by the same session; new inputs are drawn and bound beforehand."""
        session = self._items[message["item"]].session
        if not hasattr(session, "reshape"):
            raise ValueError("this runtime cannot change the shapes of a session here")
        times = []
        for shapes in message["order"]:
            session.reshape(shapes)
            start = perf_counter_ns()
            session.run()
            times.append(max(perf_counter_ns() - start, 1))
        return {"status": "ok", "times_ns": times, "memory_bytes": machine.peak_memory_bytes()}

    def _kernels(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What every kernel of a model takes under the runtime's own profiler, where it has one."""
        if not hasattr(self._runtime, "timed"):
            raise ValueError("this runtime does not tell its kernels")
        path, setting = message["path"], message["setting"]
        _check_hash(path, message["sha256"])
        told = self._runtime.timed(path, setting, message["high"], message["shapes"], KERNEL_RUNS)
        self._forget(path)
        kernels = [
            {"type": kind, "reads": list(reads), "shape": list(outputs[0][0]) if outputs else [], "ms": ms}
            for _, kind, reads, outputs, ms in told
        ]
        return {"status": "ok", "kernels": kernels}

    def _burst(self, item: Loaded, before: float | None, policy: Mapping[str, Any]) -> tuple[list[float], float | None]:
        """A burst and the slower of the canaries around it: a burst is undisturbed if both were."""
        self._rest()
        readings = item.burst(policy)
        self._spinning = item.threads > 1
        after = self._canary(policy)
        return readings, None if before is None or after is None else max(before, after)

    def _undisturbed(self, item: Loaded, canary: float, policy: Mapping[str, Any]) -> tuple[list[float], float]:
        """Extra bursts, each begun when the canary is back at its usual speed, until one is undisturbed or time is up."""
        extra: list[float] = []
        end = perf_counter_ns() + policy["wait_ms"] * 1e6
        while self._is_slow(canary, policy) and perf_counter_ns() < end:
            before = self._canary(policy)
            if before is not None and not self._is_slow(before, policy):
                readings, around = self._burst(item, before, policy)
                extra += readings
                canary = min(canary, around if around is not None else canary)
        return extra, canary

    def _rest(self) -> None:
        """Waits until no other thread of this process runs. Runtimes let theirs spin on after a run (onnxruntime for 30 ms);
        what is measured meanwhile shares a core with them and takes up to twice as long."""
        end = perf_counter_ns() + REST_LIMIT_NS
        while self._spinning and perf_counter_ns() < end:
            used = time.process_time_ns()
            time.sleep(REST_NS / 1e9)
            self._spinning = time.process_time_ns() - used > REST_NS // 10
        self._spinning = False

    def _canary(self, policy: Mapping[str, Any]) -> float | None:
        self._rest()
        taken = self._reference(CANARY, policy["canary_ms"] * 1e6)
        if taken is not None:
            self._canaries = sorted([*self._canaries, taken])[:2]
        return taken

    def _is_slow(self, canary_ns: float, policy: Mapping[str, Any]) -> bool:
        """Against the second best seen in this process: the best may have been a lucky moment."""
        return bool(canary_ns > policy["slow"] * self._canaries[-1])

    def _reference(self, name: str, until_ns: float) -> float | None:
        if name not in self._items or until_ns <= 0:
            return None
        return statistics.median(self._items[name].readings(until_ns, 1))


def _check_hash(path: str, sha256: str) -> None:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:  # noqa: PTH123
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    if digest.hexdigest() != sha256:
        raise ValueError(f"model {path} is not the one announced (hash differs)")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests until the pipe closes or the host says stop."""
    worker = Worker()
    gc.disable()  # a collection inside a reading would be measured as the model's time
    for line in requests:
        message = decode(line)
        if message.get("ask") == "stop":
            break
        answers.write(encode(worker.answer(message, requests)))
        answers.flush()


def end_with_parent() -> None:
    """Has the kernel end this process when the one that started it ends, even while a model runs that never returns.

    Linux alone can; elsewhere a worker ends at the next request that does not come.
    """
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


def main() -> None:
    """Takes the pipe for itself and serves; ends without a word when the host is gone."""
    end_with_parent()
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, pipe)
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
