"""The suites of runtimes and transports over every registered one, as far as this machine has them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import tomli_w

from hwbench.core import registry
from hwbench.device import files
from hwbench.device.transport.base import for_device
from hwbench.profiler import host
from hwbench.profiler.plan import Plan
from hwbench.profiler.policy import Policy
from hwbench.testing.base import suites
from hwbench.testing.transport import TransportContract
from tests import setups
from tests.device.sshd import Sshd

KIND = "x86" if os.uname().machine in ("x86_64", "AMD64", "i686") else "arm"

globals().update({f"{title}Runtime": suite for title, suite in suites("runtime").items()})


@pytest.fixture(autouse=True)
def device_of_vulkan(request):
    """For the suite of the runtime that needs one."""
    if getattr(request.cls, "name", "") == "ncnn-vulkan":
        request.getfixturevalue("vulkan_driver")


class TestLocal(TransportContract):
    name = "local"


class TestEmulated(TransportContract):
    name = "emulated"

    def arguments(self):
        setups.emulator("x86-64")
        return {"device": files.get("emulated-x86-64"), "runtime": self.runtime}


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


@pytest.fixture
def their_runtime(monkeypatch):
    """A runtime of another package, which a device has nothing of."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "assets" / "outside-parts" / "good"))
    from hwbench_outside.runtime import TheirOnnx

    yield registry.named("runtime", TheirOnnx)
    registry._given.clear()
    registry._given_shared.clear()


def test_a_runtime_of_another_package_runs_over_ssh(board, their_runtime):
    told = host.greet(Plan(Policy(), their_runtime, transport=for_device(board, their_runtime)))
    assert told["runtime"] == their_runtime == "hwbench_outside.runtime:TheirOnnx"
    assert told["runtime_version"].endswith(" plain")


def test_a_runtime_of_another_package_runs_emulated(their_runtime):
    setups.emulator("x86-64")
    device = files.get("emulated-x86-64")
    told = host.greet(Plan(Policy(), their_runtime, transport=for_device(device, their_runtime)))
    assert (told["runtime"], "qemu" in told["emulator"]) == (their_runtime, True)


class TestSsh(TransportContract):
    name = "ssh"

    @pytest.fixture(autouse=True)
    def reached(self, board):
        self.device = board
