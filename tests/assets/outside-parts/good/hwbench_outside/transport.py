"""The agent in a Python that sees none of our packages' folders, as if it were another machine."""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from pathlib import Path

from hwbench.device.transport.base import agent, crashed, popen


class TheirPipe:
    """Files travel through the pipe; the device file's section is what it says of itself."""

    shares_files = False

    def __init__(self, device, runtime):
        self._section = dict(device.section)
        folder = tempfile.mkdtemp(prefix="their-pipe-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._agent = Path(folder) / "agent.pyz"
        self._agent.write_bytes(agent(runtime)[0])

    def start(self):
        return popen([sys.executable, "-I", str(self._agent)], {"OMP_NUM_THREADS": "1"})

    def ending(self, code):
        return crashed(code)

    def environment(self):
        return {"pipe": self._section.get("colour", "plain")}
