"""Several devices profiled at the same time: this machine, an emulated one and one over ssh, and one that cannot be reached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tomli_w
from filelock import FileLock

import hwbench
from hwbench.core import progress
from hwbench.core.errors import UsageError
from hwbench.core.progress import Far
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut.journal import Journal, journal_path
from hwbench.lut.table import lut_path
from hwbench.network.spec import OpSpec
from hwbench.profiler import side_by_side, turns
from hwbench.profiler.side_by_side import Failed, Work, machine_of, profile_side_by_side, targets
from tests import setups
from tests.device.sshd import Sshd
from tests.profiler.test_ssh import KIND

SPECS = [OpSpec.of(name, tokens=4, dim=8) for name in ("relu", "gelu")]


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Iterator[Sshd]:
    found = Sshd(tmp_path_factory.mktemp("sshd"))
    yield found
    found.close()


@pytest.fixture
def workspace(board, tiny_workspace, tmp_path, monkeypatch) -> Path:
    """Devices `board` and `again`, two names of one machine over ssh, and `stranger`, which lets nobody in."""
    monkeypatch.setenv("PATH", f"{board.bin}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(tiny_workspace / "devices", tmp_path / "devices")
    for name, host in (("board", "board"), ("again", "behind"), ("stranger", "stranger")):
        document = {
            "schema": 1, "name": name, "kind": KIND, "reach": "ssh", "detected_on": "2026-01-01",
            "cpu": {"model": "any", "signature": "any", "isa": [], "cores": 1},
            "memory": {"total_bytes": 1, "caches_bytes": {}}, "peaks": {},
            "ssh": {"host": host, "python": sys.executable, "folder": f"{board.folder}/usual"},
        }  # fmt: skip
        (tmp_path / "devices" / f"{name}.toml").write_text(tomli_w.dumps(document))
    return tmp_path


def at(workspace: Path, *devices: str) -> list[Target]:
    return targets(devices, lambda name: Target.of(name, workspace=workspace))


def test_each_device_has_its_own_answer_and_journal_and_one_that_fails_stops_no_other(workspace, fast_policy):
    setups.emulator("cortex-a72")
    here, emulated, board, stranger = wanted = at(workspace, "local", "emulated-cortex-a72", "board", "stranger")
    answers = profile_side_by_side(Work(SPECS, fast_policy), wanted)
    assert list(answers) == [each.device for each in wanted]
    failed = answers.pop(stranger.device)
    assert isinstance(failed, Failed)
    assert failed.exit_code == 4
    assert "stranger cannot be measured (unreachable)" in failed.message
    for target in (here, emulated, board):
        done = answers[target.device]
        assert (done.rows, done.measured_rows, done.failed) == (2, 2, {}), target
        assert {line["key"] for line in Journal(journal_path(lut_path(target))).read()} == {spec.key for spec in SPECS}
    assert not journal_path(lut_path(stranger)).exists()
    again = profile_side_by_side(Work(SPECS, fast_policy), [here, board])
    assert [answer.measured_rounds for answer in again.values()] == [0, 0]


def test_what_computes_on_one_machine_takes_turns(workspace):
    found = {name: machine_of(*at(workspace, name)) for name in ("local", "board", "again", "stranger")}
    assert (found["local"], found["board"], found["stranger"]) == ("", "", "")  # its ssh leads back to this machine
    assert found["again"].endswith(" 127.0.0.1")  # through a jump host: whose loopback that is cannot be known


def test_one_turn_at_a_time(tmp_path):
    inside, most, taken = [], [], []

    def work(name: str) -> None:
        locks = (FileLock(tmp_path / "x.now", thread_local=False), FileLock(tmp_path / "x.next", thread_local=False))
        for _ in range(3):
            with turns.held(locks):
                inside.append(name)
                most.append(len(inside))
                taken.append(name)
                time.sleep(0.01)
                inside.remove(name)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, "ab"))
    assert max(most) == 1
    assert sorted(taken) == [*"aaabbb"]


def test_a_device_whose_process_dies_is_told_by_its_name(workspace, fast_policy, monkeypatch):
    monkeypatch.setattr(side_by_side, "_measure", _die)
    answers = profile_side_by_side(Work(SPECS, fast_policy), at(workspace, "local", "board"))
    for answer in answers.values():
        assert isinstance(answer, Failed)
        assert "Its process ended with code 9" in answer.message


def _die(*_: object) -> None:
    os._exit(9)


def test_a_device_given_twice_is_refused_under_whatever_name(workspace):
    with pytest.raises(UsageError, match=rf"--device {files.local_name()} was given 2 times"):
        at(workspace, "local", files.local_name())


def test_each_has_a_line_of_its_own():
    with progress.watched() as work, progress.step("profiling"):
        with progress.side_by_side(["pi4", "pi5"]) as tell:
            tell("pi5", Far("measuring", 3, 9, "3 of 9 (33 %)"))
            assert [(line.what, line.told) for line in work.lines] == [
                ("pi4: starting", ""),
                ("pi5: measuring", "3 of 9 (33 %)"),
            ]
        assert [line.what for line in work.lines] == ["profiling"]


def test_the_command_line_ends_with_the_code_of_the_device_that_failed(workspace):
    asked = ["--space", "autoformer-tiny:image=32", "--max-seconds", "0", "--device", "stranger", "--device", "board"]
    command = [
        sys.executable,
        "-m",
        "hwbench",
        "profile",
        *asked,
        "--max-processes",
        "1",
        "--json",
        "--workspace",
        str(workspace),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parent.parent)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 4, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])["devices"]
    assert told["stranger"]["error"] == "MeasurementError"
    assert told["board"]["measured_rows"] == told["board"]["rows"]
    assert "hwbench: stranger: Device stranger cannot be measured (unreachable)" in ended.stderr
