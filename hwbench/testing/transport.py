"""What every transport keeps: fresh workers at the other end of a pipe, files that arrive, and ends that are explained."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.device.agent.message import PROTOCOL, decode, encode
from hwbench.device.files import Device, local_name
from hwbench.device.transport.base import CRASHED, DISCONNECTED, GARBLED, HUNG, REFUSED, UNREACHABLE, Transport, WorkerLost
from hwbench.testing.base import Contract, cases

STATUSES = (CRASHED, HUNG, REFUSED, GARBLED, DISCONNECTED, UNREACHABLE)
RUNTIME = "onnxruntime"


class TransportContract(Contract):
    """To `device`, or to a made-up one that says nothing but the transport's name."""

    kind = "transport"
    device: Device | None = None
    runtime = RUNTIME

    def arguments(self) -> dict[str, Any]:
        """A device and a runtime."""
        device = self.device or Device(
            name=local_name(), kind="x86", reach=self.called, cpu_model="", cpu_signature="", isa=(), cores=1, clock_mhz=None,
            memory_bytes=0, caches_bytes={}, peaks={}, detected_on="", path=Path("none.toml"),
        )  # fmt: skip
        return {"device": device, "runtime": self.runtime}

    def transport(self) -> Transport:
        """The way to the device."""
        made: Transport = self.make(**self.arguments())
        return made

    @contextmanager
    def worker(self, transport: Transport) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that is ended afterwards."""
        try:
            process = transport.start()
        except WorkerLost as lost:
            self.skip(f"the device cannot be used ({lost.status}): {lost}")
        try:
            yield process
        finally:
            process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            process.wait()

    def ask(self, process: subprocess.Popen[bytes], message: dict[str, Any], attached: bytes = b"") -> dict[str, Any]:
        """The worker's answer to a message."""
        pipes = process.stdin is not None and process.stdout is not None
        self.expect(pipes, "start", "expected a process whose standard input and output are pipes")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode(message) + attached)
        process.stdin.flush()
        line = b""
        while not line.endswith(b"\n"):
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                self.expect(False, "start", "expected an answer from the worker, its pipe was closed")
            line += piece
        return decode(line)

    def hello(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The first words."""
        return self.ask(process, {"ask": "hello", "runtime": self.runtime, **registry.recipe("runtime", self.runtime)})

    def test_a_worker_answers_in_the_protocol_of_this_version(self) -> None:
        """With the environment it found."""
        with self.worker(self.transport()) as process:
            answer = self.hello(process)
        self.expect(answer["status"] == "ok", "start", f"expected a worker that knows {self.runtime}, found {answer}")
        spoken = answer["protocol"]
        self.expect(spoken == PROTOCOL, "start", f"expected protocol {PROTOCOL}, found {spoken}")
        self.expect(answer["environment"]["runtime"] == self.runtime, "start", "expected the runtime's name in the environment")

    def test_every_start_is_a_fresh_worker(self) -> None:
        """One process each, of one transport."""
        transport = self.transport()
        pids = []
        for _ in range(2):
            with self.worker(transport) as process:
                self.hello(process)
                pids.append(process.pid)
        self.expect(len(set(pids)) == 2, "start", "expected a new process for every start")

    def test_files_are_shared_or_arrive_through_the_pipe(self) -> None:
        """`shares_files` says which."""
        transport, content = self.transport(), b"a model" * 1000
        self.expect(
            isinstance(transport.shares_files, bool), "shares_files", f"expected a bool, found {transport.shares_files!r}"
        )
        digest = hashlib.sha256(content).hexdigest()
        with self.worker(transport) as process, tempfile.NamedTemporaryFile() as file:
            self.hello(process)
            file.write(content)
            file.flush()
            path = file.name
            if not transport.shares_files:
                answer = self.ask(process, {"ask": "put", "sha256": digest, "bytes": len(content)}, content)
                self.expect(answer["status"] == "ok", "start", f"expected the worker to keep a file, found {answer}")
                path = answer["path"]
            load = {"ask": "load", "item": "x", "path": path, "sha256": digest, "setting": {"scenario": "back-to-back"},
                    "high": {}, "shapes": {}, "policy": {}, "expected": None}  # fmt: skip
            answer = self.ask(process, load)
        reason = answer.get("reason", "")
        seen = answer["status"] == "refused" and "No such file" not in reason and "hash differs" not in reason
        self.expect(seen, "shares_files", f"expected the worker to find the file and refuse it as no model, found {answer}")

    @cases(code=[0, 1, 255, -9, -11])
    def test_an_end_is_explained(self, code: int) -> None:
        """(status, reason)."""
        found = self.transport().ending(code)
        pair = isinstance(found, tuple) and len(found) == 2 and found[0] in STATUSES and isinstance(found[1], str) and found[1]
        self.expect(pair, "ending", f"expected (one of {', '.join(STATUSES)}; a reason) for code {code}, found {found!r}")

    def test_what_the_worker_cannot_know_is_json(self) -> None:
        """It is stored with every measurement."""
        found = self.transport().environment()
        try:
            plain = isinstance(found, dict) and json.loads(json.dumps(found)) == found
        except (TypeError, ValueError):
            plain = False
        self.expect(plain, "environment", f"expected a dictionary of JSON values, found {found!r}")
