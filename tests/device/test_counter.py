"""Markers: refused where nobody answers them, exact to the instruction where the plugin does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from hwbench.device import emulator
from hwbench.device.agent import counter
from tests import setups

GUEST = """
import ctypes, json, mmap, os, platform
import counter

# f(n): the marker START, n times "subtract 1, jump back unless 0", the marker STOP, return.
# From one marker to the other 2 n + 3 instructions: the last three load two registers and call.
code = {
    "x86_64": "4189f8 b877680000 bf01000000 0f05 41ffc8 75fb b877680000 bf02000000 0f05 c3",
    "aarch64": "e903002a e80e8d52 20008052 010000d4 29050071 e1ffff54 e80e8d52 40008052 010000d4 c0035fd6",
}[platform.machine()]
page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex(code))
loop = ctypes.CFUNCTYPE(None, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
for n in (1, 1000, 1000000):
    loop(n)
with open(os.environ[counter.VARIABLE]) as stream:
    found = {"loops": [int(line) for line in stream]}

counting = counter.find()
try:
    counting.stop()
except ValueError as error:
    found["refused"] = str(error)

def nothing():
    counting.start()
    return counting.stop()

print(json.dumps({**found, "overhead": counting.overhead, "nothing": [nothing() for _ in range(30)][16:]}))
"""


@pytest.fixture(scope="session", params=sorted(emulator.EMULATORS))
def said(request, tmp_path_factory) -> dict:
    """What a guest of each kind counts of loops of known length, and of nothing."""
    counts = tmp_path_factory.mktemp("a,comma") / "counts"
    command, environment = setups.emulator(request.param).command(["-c", GUEST], counts)
    environment["PYTHONPATH"] = str(Path(counter.__file__).parent)
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_instruction_between_markers_is_counted_once(said):
    assert said["loops"] == [2 * n + 3 for n in (1, 1000, 1_000_000)]


def test_markers_take_their_own_cost_off(said):
    assert 0 < said["overhead"] < 10_000
    assert max(said["nothing"]) < said["overhead"] / 5


def test_a_stop_without_a_start_is_refused(said):
    assert "stopped without a start" in said["refused"]


def test_without_the_variable_time_is_measured(monkeypatch):
    monkeypatch.delenv(counter.VARIABLE, raising=False)
    assert counter.find() is None


@pytest.mark.parametrize("exists", [True, False])
def test_markers_nobody_answers_are_one_clear_line(monkeypatch, tmp_path, exists):
    path = tmp_path / "counts"
    if exists:
        path.write_text("12\n")  # of an earlier process: never taken for an answer
    monkeypatch.setenv(counter.VARIABLE, str(path))
    with pytest.raises(ValueError, match="does not run under hwbench's qemu plugin") as caught:
        counter.find()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_both_sides_name_the_markers_alike():
    found = re.search(r"MARKER = (\d+), START = (\d+), STOP = (\d+)", emulator.PLUGIN.read_text())
    assert found is not None
    assert tuple(map(int, found.groups())) == (counter.MARKER, counter.START, counter.STOP)
