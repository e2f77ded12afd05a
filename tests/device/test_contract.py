"""The suites of runtimes and transports over every registered one, as far as this machine has them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import tomli_w

from hwbench.device import files
from hwbench.testing.base import suites
from hwbench.testing.transport import TransportContract
from tests.device.sshd import Sshd

KIND = "x86" if os.uname().machine in ("x86_64", "AMD64", "i686") else "arm"

globals().update({f"{title}Runtime": suite for title, suite in suites("runtime").items()})


class TestLocal(TransportContract):
    name = "local"


class TestEmulated(TransportContract):
    name = "emulated"

    def arguments(self):
        device = files.get("emulated-x86-64")
        if device.unreachable:
            self.skip(device.unreachable)
        return {"device": device, "runtime": self.runtime}


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """A device file whose host a real sshd is."""
    found = Sshd(tmp_path_factory.mktemp("sshd"))
    path = Path(tmp_path_factory.mktemp("board")) / "board.toml"
    document = {
        "schema": 1, "name": "board", "kind": KIND, "reach": "ssh", "detected_on": "2026-01-01",
        "cpu": {"model": "any", "signature": "any", "isa": [], "cores": 1},
        "memory": {"total_bytes": 1, "caches_bytes": {}}, "peaks": {},
        "ssh": {"host": "board", "python": sys.executable, "folder": f"{found.folder}/agent"},
    }  # fmt: skip
    path.write_text(tomli_w.dumps(document))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{found.bin}{os.pathsep}{os.environ['PATH']}")
        yield files.read(path)
    found.close()


class TestSsh(TransportContract):
    name = "ssh"

    @pytest.fixture(autouse=True)
    def reached(self, board):
        self.device = board
