"""An emulated processor: the worker is a guest Python under qemu, and counts instructions instead of time.

Emulated time means nothing and is never stored; what is counted repeats within 0.05 % (verdict.COUNT_PRECISION) whatever
else the machine does. Set up once: hwbench device setup emulated-cortex-a72
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

from hwbench.device import emulator
from hwbench.device.files import Device
from hwbench.device.transport.base import agent, crashed, popen


class Emulated:
    """A guest process that sees the host's files."""

    name: str
    shares_files = True

    def __init__(self, device: Device, runtime: str) -> None:
        self._emulator = emulator.find(device.emulator)
        self._scratch = tempfile.mkdtemp(prefix="hwbench-")
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        # The agent, not our own folder: where hwbench is installed, that holds packages compiled for this machine.
        self._agent = Path(self._scratch) / "agent.pyz"
        self._agent.write_bytes(agent(runtime)[0])

    def start(self) -> subprocess.Popen[bytes]:
        """A worker in the guest's Python, under the counting plugin."""
        counts = Path(tempfile.mkdtemp(dir=self._scratch)) / "counts"
        return popen(*self._emulator.command([str(self._agent)], counts))

    def ending(self, code: int) -> tuple[str, str]:
        """A guest only crashes."""
        return crashed(code)

    def environment(self) -> dict[str, Any]:
        """Which emulator stands for the processor."""
        return {"emulator": self._emulator.description}
