"""A Ray cluster of this machine for tests and studies: as many raylets as asked for, each as if it were a machine of its own.

It has a folder and ports of its own, so that others on this machine stay apart from it; any raylet can be killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

from hwbench.core.errors import MeasurementError

ROOT = Path(__file__).parents[1]
PATIENCE_S = 120.0
"""For a raylet to come up on a machine that is busy."""


class RayCluster:
    """Raylets with so many processors each, the head first; devices are resources of the raylet they are given to.

    Args:
        processors: Of each raylet.
        resources: Of each raylet, as `ray start --resources` takes them.
    """

    def __init__(self, *processors: int, resources: Mapping[int, str] = {}) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets lie below it, whose paths must be short
        self.environment = {
            **os.environ, "RAY_TMPDIR": str(self.folder), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self.environment.pop("RAY_ADDRESS", None)
        self._nodes: list[subprocess.Popen[bytes]] = []
        try:
            self._start("--head", "--port", "0", "--include-dashboard", "false", n=processors[0], own=resources.get(0))
            self.address = self._address()
            for at, n in enumerate(processors[1:], 1):
                self._start("--address", self.address, n=n, own=resources.get(at))
            self._wait(len(processors))
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def kill(self, at: int) -> None:
        """Ends a raylet and all it runs, as a machine is lost: nobody says goodbye."""
        node = psutil.Process(self._nodes[at].pid)
        for process in [node, *node.children(recursive=True)]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._nodes[at].wait()

    def end(self) -> None:
        """Leaves nothing behind."""
        for at in reversed(range(len(self._nodes))):
            if self._nodes[at].poll() is None:
                self.kill(at)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, *how: str, n: int, own: str | None) -> None:
        more = ["--resources", own] if own else []
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *how, "--num-cpus", str(n), *more, "--block"]
        command += ["--object-store-memory", "100000000", "--disable-usage-stats"]
        with (self.folder / f"node-{len(self._nodes)}.log").open("wb") as log:
            self._nodes.append(
                subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _address(self) -> str:
        stated = self.folder / "ray" / "ray_current_cluster"
        self._until(stated.exists)
        return stated.read_text().strip()

    def _wait(self, nodes: int) -> None:
        """Until all have joined: each writes a log of its raylet, and the last of them says that it runs."""
        for at in range(nodes):
            self._until(lambda at=at: b"Ray runtime started" in (self.folder / f"node-{at}.log").read_bytes())

    def _until(self, there: object) -> None:
        end = time.monotonic() + PATIENCE_S
        while not there():  # type: ignore[operator]
            lost = next((each for each in self._nodes if each.poll() is not None), None)
            if lost is not None or time.monotonic() > end:
                said = (self.folder / f"node-{len(self._nodes) - 1}.log").read_text()[-600:]
                raise MeasurementError(f"A raylet did not start: {' '.join(said.split())}")
            time.sleep(0.1)
