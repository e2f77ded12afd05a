"""A device over ssh, against a real sshd: what is copied, what each fault says, and profiles that outlive cut connections."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import tomli_w

from hwbench.core.errors import DataError, MeasurementError
from hwbench.device import files
from hwbench.device.agent import bundle
from hwbench.device.target import Target
from hwbench.device.transport.base import CRASHED, DISCONNECTED, REFUSED, UNREACHABLE, WorkerLost
from hwbench.device.transport.ssh import Ssh
from hwbench.lut.journal import Journal
from hwbench.network.spec import OpSpec
from hwbench.profiler import host
from hwbench.profiler.host import WorkerProcess
from hwbench.profiler.measure import measure
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import ProfileResult, profile_specs
from hwbench.testing.runtime import model
from tests.device.sshd import Sshd, bare_python, script

HELLO = {"ask": "hello", "runtime": "onnxruntime", "class": "hwbench.runtime.onnxruntime:Onnxruntime", "arguments": {}}

KIND = "x86" if os.uname().machine in ("x86_64", "AMD64", "i686") else "arm"
SPECS = [OpSpec.of(name, tokens=4, dim=8) for name in ("relu", "gelu", "silu", "layernorm")]
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Sshd:
    """The device; `ssh board` reaches it."""
    found = Sshd(tmp_path_factory.mktemp("sshd"))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def own_configuration(board, monkeypatch):
    """The test's ssh configuration stands for the user's."""
    monkeypatch.setenv("PATH", f"{board.bin}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def folder(board, tmp_path) -> Path:
    """A folder of the device that holds no agent yet."""
    return board.folder / tmp_path.name


@pytest.fixture
def described(tmp_path, board) -> Callable[..., files.Device]:
    """Writes a device file; what is given replaces what usually stands under [ssh]."""

    def write(kind: str = KIND, **ssh: object) -> files.Device:
        path = tmp_path / "devices" / "board.toml"
        path.parent.mkdir(exist_ok=True)
        document = {
            "schema": 1, "name": "board", "kind": kind, "reach": "ssh", "detected_on": "2026-01-01",
            "cpu": {"model": "any", "signature": "any", "isa": [], "cores": 1},
            "memory": {"total_bytes": 1, "caches_bytes": {}}, "peaks": {},
            "ssh": {"host": "board", "python": sys.executable, "folder": f"{board.folder}/usual", **ssh},
        }  # fmt: skip
        path.write_text(tomli_w.dumps(document))
        return files.read(path)

    return write


def hello(reach: Ssh) -> WorkerProcess:
    return WorkerProcess("onnxruntime", TIMEOUT_S, reach)


def lost(reach: Ssh) -> tuple[str, str]:
    """How reaching it fails: status and reason, which is one line."""
    with pytest.raises(WorkerLost) as caught:
        hello(reach)
    assert "\n" not in str(caught.value)
    return caught.value.status, str(caught.value)


# Reaching it


def test_the_agent_is_copied_once_and_again_only_where_it_was_changed(described, folder):
    content, digest = bundle.build()
    path = folder / f"agent-{digest[:16]}.pyz"
    found = described(folder=str(folder))
    first = hello(Ssh(found, "onnxruntime"))
    assert first.environment["machine"] == os.uname().machine
    assert [p.name for p in folder.iterdir()] == [path.name]
    assert path.read_bytes() == content
    written = path.stat()
    second = hello(Ssh(found, "onnxruntime"))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    path.write_bytes(content[:-1] + b"x")
    third = hello(Ssh(found, "onnxruntime"))
    assert path.read_bytes() == content
    for worker in (first, second, third):
        worker.close()


@pytest.mark.parametrize("host_name", ["board", "behind"])
def test_the_users_configuration_counts_jump_hosts_too(described, host_name):
    hello(Ssh(described(host=host_name), "onnxruntime")).close()


def test_options_reach_ssh_and_scp(described, board, folder):
    found = described(host="127.0.0.1", options=[f"Port={board.port}"], folder=str(folder))
    hello(Ssh(found, "onnxruntime")).close()
    assert [p.suffix for p in folder.iterdir()] == [".pyz"]


def test_paths_begin_at_the_login_folder(described, folder):
    def below(path: Path) -> str:
        return os.path.relpath(path, Path.home())

    python = script(folder.parent / f"{folder.name}-python", f'exec {sys.executable} "$@"')
    hello(Ssh(described(python=f"~/{below(python)}", folder=below(folder)), "onnxruntime")).close()
    assert [p.suffix for p in folder.iterdir()] == [".pyz"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"options": ["ProxyCommand=touch /tmp/x"]},
            "'ssh.options' may not hold 'ProxyCommand=touch /tmp/x'; available: Address",
        ),
        ({"options": ["StrictHostKeyChecking=no"]}, "put all others into ~/.ssh/config"),
        ({"options": ["Port=22\nProxyCommand=x"]}, "ssh.options"),
        ({"folder": "a b"}, "'ssh.folder' may hold letters, digits and ._/+- only, found 'a b'"),
        ({"folder": "$(id)"}, "'ssh.folder' may hold"),
    ],
)
def test_a_device_file_cannot_run_commands_here_or_decide_whom_to_trust(described, section, said):
    with pytest.raises(DataError) as caught:
        Ssh(described(**section), "onnxruntime")
    assert said in str(caught.value)


# What is wrong with it


def test_a_closed_port_is_told_as_ssh_tells_it(described, board):
    status, reason = lost(Ssh(described(options=["Port=1"]), "onnxruntime"))
    assert status == UNREACHABLE
    said = "ssh: connect to host 127.0.0.1 port 1: Connection refused"
    assert reason == f"board cannot be reached: {said}; try: ssh board true"


@pytest.mark.parametrize(
    ("host_name", "said"), [("stranger", "Permission denied"), ("impostor", "Host key verification failed")]
)
def test_nothing_is_asked_where_keys_are_unknown(described, host_name, said):
    status, reason = lost(Ssh(described(host=host_name), "onnxruntime"))
    assert (status, said in reason) == (UNREACHABLE, True)


def test_a_machine_of_another_kind_is_refused(described):
    other = "arm" if KIND == "x86" else "x86"
    found = described(kind=other)
    expected = f"device file says {other}, board answered {os.uname().machine}; mend {found.path}"
    assert lost(Ssh(found, "onnxruntime")) == (REFUSED, expected)


def test_no_python_is_refused(described):
    found = described(python="python-nobody-has")
    expected = f"board has no program python-nobody-has; name one as `python` in {found.path}"
    assert lost(Ssh(found, "onnxruntime")) == (REFUSED, expected)


def test_an_old_python_is_refused(described, tmp_path):
    pretend = "import sys; sys.version_info = (3, 8, 10); sys.argv = sys.argv[1:]; exec(sys.stdin.read())"
    old = script(tmp_path / "python3.8", f"exec {sys.executable} -c '{pretend}' \"$@\"")
    status, reason = lost(Ssh(described(python=str(old)), "onnxruntime"))
    assert status == REFUSED
    assert f"{old} on board is 3.8.10, 3.9 or newer is needed" in reason


def test_a_python_that_fails_is_refused_with_its_words(described, tmp_path):
    broken = script(tmp_path / "broken", "echo no such library >&2; exit 3")
    assert lost(Ssh(described(python=str(broken)), "onnxruntime")) == (
        REFUSED,
        f"{broken} on board ended with code 3: no such library",
    )


def test_a_shell_that_greets_is_refused(described, tmp_path):
    greeting = script(tmp_path / "greeting", f'echo Welcome; exec {sys.executable} "$@"')
    status, reason = lost(Ssh(described(python=str(greeting)), "onnxruntime"))
    assert (status, "prints 'Welcome' into every command's output" in reason) == (REFUSED, True)


def test_missing_numpy_is_refused_with_the_command_to_run(described, tmp_path):
    python = bare_python(tmp_path)
    expected = f"board lacks numpy; run there: {python} -m pip install numpy"
    assert lost(Ssh(described(python=str(python)), "onnxruntime")) == (REFUSED, expected)


def test_a_missing_runtime_is_refused_with_what_to_install(described, tmp_path):
    python = bare_python(tmp_path, "numpy")
    described(python=str(python))
    with pytest.raises(MeasurementError) as caught:
        profile_specs(SPECS, Target.of("board", workspace=tmp_path))
    assert str(caught.value).startswith("Device board cannot be measured (refused): ")
    assert "pip install onnxruntime" in str(caught.value)


def test_a_folder_that_cannot_be_used_is_refused(described, tmp_path):
    (tmp_path / "file").write_text("")
    status, reason = lost(Ssh(described(folder=f"{tmp_path}/file/below"), "onnxruntime"))
    assert (status, "cannot be used: [Errno 20] Not a directory" in reason) == (REFUSED, True)


def test_a_device_without_sftp_says_so(described, folder, tmp_path, monkeypatch):
    (tmp_path / "sshd").mkdir()
    other = Sshd(tmp_path / "sshd", sftp=False)
    monkeypatch.setenv("PATH", f"{other.bin}{os.pathsep}{os.environ['PATH']}")
    try:
        status, reason = lost(Ssh(described(folder=str(folder)), "onnxruntime"))
    finally:
        other.close()
    assert (status, "could not be copied" in reason, "subsystem request failed" in reason) == (REFUSED, True, True)


def test_a_device_without_room_for_the_agent_is_refused(described):
    """/proc is a file system without a free byte."""
    room = f"0 bytes free in /proc, the agent takes {len(bundle.build()[0])}"
    assert lost(Ssh(described(folder="/proc"), "onnxruntime")) == (REFUSED, f"disk full on board: {room}")


# Its worker ends


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (255, (DISCONNECTED, "connection to board lost")),
        (-9, (DISCONNECTED, "connection to board lost")),
        (137, (CRASHED, "worker ended by signal 9 (killed; out of memory?)")),
        (139, (CRASHED, "worker ended by signal 11 (segmentation fault)")),
        (254, (CRASHED, "worker ended with code 254")),
        (1, (CRASHED, "worker ended with code 1")),
    ],
)
def test_an_exit_code_tells_a_crash_from_a_lost_connection(described, code, ending):
    assert Ssh(described(), "onnxruntime").ending(code) == ending


def test_a_killed_agent_is_a_crash_with_its_signal_named(described, board):
    worker = hello(Ssh(described(), "onnxruntime"))
    (found,) = board.agents()
    found.kill()
    with pytest.raises(WorkerLost) as caught:
        worker.ask(HELLO)
    worker.close()
    assert (caught.value.status, str(caught.value)) == (CRASHED, "worker ended by signal 9 (killed; out of memory?)")


def test_an_agent_that_ends_with_255_is_still_a_crash(described, tmp_path):
    ending = script(tmp_path / "ending", f'[ "$1" = - ] && exec {sys.executable} "$@"; echo out of luck >&2; exit 255')
    assert lost(Ssh(described(python=str(ending)), "onnxruntime")) == (CRASHED, "worker ended with code 254: out of luck")


def kill_clients() -> None:
    """Every ssh this process started."""
    for child in psutil.Process().children():
        if child.name() == "ssh":
            child.kill()


@pytest.mark.parametrize("end", ["far", "near"])
def test_a_cut_connection_blames_nobody_and_leaves_no_agent_behind(described, board, end):
    worker = hello(Ssh(described(), "onnxruntime"))
    (left,) = board.agents()
    board.cut() if end == "far" else kill_clients()
    with pytest.raises(WorkerLost) as caught:
        worker.ask(HELLO)
    worker.close()
    assert caught.value.status == DISCONNECTED
    assert re.fullmatch("connection to board lost" + (r": .*(closed|Broken pipe).*" if end == "far" else ""), str(caught.value))
    patience = time.monotonic() + 20
    while left.is_running() and left.status() != psutil.STATUS_ZOMBIE and time.monotonic() < patience:
        time.sleep(0.02)
    assert board.agents() == []


def test_a_silent_connection_is_given_up_and_its_agent_ended_by_the_next_one_of_its_host_only(described, board):
    reach = Ssh(described(options=["ServerAliveInterval=1", "ServerAliveCountMax=1"]), "onnxruntime")
    worker = hello(reach)
    (silent,) = board.agents()
    board.freeze()
    with pytest.raises(WorkerLost) as caught:
        worker.ask(HELLO)
    worker.close()
    assert (caught.value.status, "Timeout, server 127.0.0.1 not responding" in str(caught.value)) == (DISCONNECTED, True)
    others = hello(Ssh(described(), "onnxruntime"))
    assert silent in board.agents()
    following = hello(reach)
    assert silent not in board.agents()
    for worker in (others, following):
        assert worker.ask(HELLO)["status"] == "ok"
        worker.close()
    board.cut()


# Whole profiles


@pytest.fixture
def profile(described, tmp_path, fast_policy) -> Callable[..., ProfileResult]:
    """Profiles the ops on the board into the test's workspace."""
    described()

    def run(tick: Callable[[int, int], None] = lambda taken, planned: None, policy: Policy = fast_policy) -> ProfileResult:
        return profile_specs(SPECS, Target.of("board", workspace=tmp_path), policy=policy, tick=tick)

    return run


def require_each_once(done: ProfileResult) -> int:
    """Every (op, process, round) of the plan stands in the journal, once, and is good; returns how many workers took them."""
    entries = list(Journal(done.path.with_suffix(".samples.jsonl")).read())
    taken = Counter((entry["key"], entry["process"], entry["round"]) for entry in entries)
    assert taken == Counter({(spec.key, process, 0): 1 for spec in SPECS for process in range(3)})
    assert {entry["status"] for entry in entries} == {"ok"}
    assert done.failed == {}
    return len({entry["worker"] for entry in entries})


def test_a_whole_profile(profile, board):
    done = profile()
    assert (done.device, done.rows, done.measured_rounds) == ("board", len(SPECS), 3 * len(SPECS))
    assert require_each_once(done) == 3
    assert profile().measured_rounds == 0
    assert {p.suffix for p in (board.folder / "usual").iterdir()} == {".pyz"}  # no model stays there


@pytest.mark.slow  # each cut connection is found out and made again
def test_a_profile_outlives_cut_connections(profile, board, fast_policy):
    """Between bursts, twice within one process, at the near end, and in the middle of a burst."""
    within = threading.Timer(0.03, board.cut)
    cuts = {2: board.cut, 3: board.cut, 5: kill_clients, 9: within.start}
    long = replace(fast_policy, reading_ms=5.0, burst_ms=100.0)
    done = profile(lambda taken, planned: cuts.get(taken, int)(), long)
    within.join()
    assert require_each_once(done) >= 3 + 3  # each cut but the last, whose moment is not ours to choose, took a fresh worker
    assert done.measured_rounds == 3 * len(SPECS)


def test_a_device_that_stays_away_ends_the_run_and_the_next_one_goes_on(profile, board, monkeypatch):
    monkeypatch.setattr(host, "RECONNECTS_S", (0.1, 0.1))

    def switch_off(taken: int, planned: int) -> None:
        if taken == 5:
            board.stop()
            kill_clients()

    with pytest.raises(MeasurementError) as caught:
        profile(switch_off)
    assert "Connection refused" in str(caught.value)
    assert "5 bursts taken now are kept; run it again" in str(caught.value)
    board.start()
    done = profile()
    require_each_once(done)
    assert done.measured_rounds == 3 * len(SPECS) - 5


def test_an_agent_killed_within_an_op_costs_that_op_only(profile, board):
    def kill(taken: int, planned: int) -> None:
        if taken == 2:
            (found,) = board.agents()
            found.kill()

    done = profile(kill)
    assert list(done.failed.values()) == ["crashed: worker ended by signal 9 (killed; out of memory?)"]


def test_a_model_the_device_cannot_store_is_refused_and_the_rest_measured(described, tmp_path, fast_policy):
    """A shell that lets no file grow beyond 100 blocks: to the agent a disk that is full, and only for the large model."""
    described(python=str(script(tmp_path / "limited", f'ulimit -f 100; exec {sys.executable} "$@"')))
    large = OpSpec.of("linear", tokens=4, **{"in": 64}, out=512)
    done = profile_specs([*SPECS, large], Target.of("board", workspace=tmp_path), policy=fast_policy)
    assert list(done.failed) == [large.key]
    assert re.fullmatch(r"refused: the device cannot store a file of 13\d{4} bytes: File too large", done.failed[large.key])


# A model of one's own


def test_a_model_of_ones_own_is_measured_there_and_held_against_its_last_time(described, tmp_path, fast_policy):
    described()
    with model() as path:
        measured = [
            measure(path, device="board", workspace=tmp_path, policy=fast_policy, against=last)[0] for last in (None, "LAST")
        ]
    assert [document["device"] for document in measured] == ["board", "board"]
    assert all(document["latency_min_ms"] > 0 and document["peak_memory_bytes"] > 0 for document in measured)
    assert "compared_with_last" in measured[1]


def test_a_device_that_counts_instructions_tells_no_latency_of_a_model(tmp_path):
    with model() as path, pytest.raises(MeasurementError, match=r"emulated-x86-64 counts instructions.*hwbench profile"):
        measure(path, device="emulated-x86-64", workspace=tmp_path)
