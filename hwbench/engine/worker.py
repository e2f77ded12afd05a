"""The measuring worker (`python -m hwbench.engine.worker`): reads one request per line, answers one line.

Imports the standard library, numpy and the runtime asked for, nothing else, so that the same files run on
a device with Python 3.9. Whatever native libraries print goes to stderr; the answers have the pipe alone.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import math
import os
import sys
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any, BinaryIO

from hwbench import environment
from hwbench.engine.message import PROTOCOL, decode, encode

SETTLE_NS = 4_000_000


class Worker:
    """Holds the loaded sessions of one process."""

    def __init__(self) -> None:
        self._runtime: Any = None
        self._sessions: dict[str, Any] = {}
        self._inner: dict[str, int] = {}
        self._fastest_ns: dict[str, int] = {}

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request; what the runtime refuses comes back as a reason."""
        handler = {"hello": self._hello, "load": self._load, "sample": self._sample}.get(message.get("ask", ""))
        if handler is None:
            return {"status": "refused", "reason": f"unknown request {message.get('ask')!r}"}
        try:
            return handler(message)
        except Exception as error:  # runtimes raise whatever they like; all of it is an answer
            return {"status": "refused", "reason": str(error).splitlines()[0] if str(error) else type(error).__name__}

    def _hello(self, message: Mapping[str, Any]) -> dict[str, Any]:
        name = message["runtime"]
        module = importlib.import_module(f"hwbench.runtime.{name}")
        self._runtime = getattr(module, "".join(part.capitalize() for part in name.split("_")))()
        found = environment.collect(name, self._runtime.version())
        return {"status": "ok", "protocol": PROTOCOL, "environment": dict(found.values)}

    def _load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        digest = hashlib.sha256()
        with open(message["path"], "rb") as stream:  # noqa: PTH123
            for piece in iter(lambda: stream.read(1 << 20), b""):
                digest.update(piece)
        if digest.hexdigest() != message["sha256"]:
            raise ValueError(f"model {message['path']} is not the one announced (hash differs)")
        item, policy = message["item"], message["policy"]
        start = perf_counter_ns()
        session = self._runtime.load(message["path"], message["setting"], message["high"])
        loaded = perf_counter_ns()
        session.run()
        first = perf_counter_ns()
        fastest, spent, runs = first - loaded, 0, 0
        while runs < 1 or spent < policy["warmup_ms"] * 1e6:
            before = perf_counter_ns()
            session.run()
            took = perf_counter_ns() - before
            fastest, spent, runs = min(fastest, took), spent + took, runs + 1
        self._sessions[item] = session
        self._fastest_ns[item] = max(fastest, 1)
        self._inner[item] = max(1, math.ceil(policy["sample_ms"] * 1e6 / self._fastest_ns[item]))
        return {
            "status": "ok",
            "load_ms": (loaded - start) / 1e6,
            "first_ms": (first - loaded) / 1e6,
            "inner": self._inner[item],
        }

    def _sample(self, message: Mapping[str, Any]) -> dict[str, Any]:
        item = message["item"]
        run, inner = self._sessions[item].run, self._inner[item]
        until = message["policy"]["round_ms"] * 1e6
        samples: list[float] = []
        # Bring caches and clocks back to this item after the others ran: seen to take about 4 ms, which a run
        # longer than the round holds itself.
        settled = 0.0
        while settled < SETTLE_NS and self._fastest_ns[item] < until:
            run()
            settled += self._fastest_ns[item]
        loop = range(inner)
        spent = 0
        while not samples or spent < until:
            start = perf_counter_ns()
            for _ in loop:
                run()
            took = perf_counter_ns() - start
            spent += took
            samples.append(took / inner)
        return {"status": "ok", "inner": inner, "samples_ns": samples}


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests until the pipe closes or the host says stop."""
    worker = Worker()
    gc.disable()  # a collection inside a sample would be measured as the model's time
    for line in requests:
        message = decode(line)
        if message.get("ask") == "stop":
            break
        answers.write(encode(worker.answer(message)))
        answers.flush()


def main() -> None:
    """Takes the pipe for itself and serves; ends without a word when the host is gone."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, pipe)
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
