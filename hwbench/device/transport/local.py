"""This machine: the worker is a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from hwbench.device.files import Device
from hwbench.device.transport.base import crashed, popen

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Pools of other libraries would idle beside the measurement."""


class Local:
    """A child process."""

    name: str
    shares_files = True

    def __init__(self, device: Device | None = None, runtime: str = "") -> None:
        """Neither decides anything here."""

    def start(self) -> subprocess.Popen[bytes]:
        """A worker in this Python."""
        return self.in_this_python()

    def in_this_python(self, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """A worker that looks for packages in these folders first."""
        environment = {**ONE_THREAD, "PYTHONPATH": os.pathsep.join([*before, *sys.path])}
        return popen([sys.executable, "-m", "hwbench.device.agent.worker"], environment)

    def ending(self, code: int) -> tuple[str, str]:
        """A child process only crashes."""
        return crashed(code)

    def environment(self) -> dict[str, Any]:
        """It knows its machine."""
        return {}
