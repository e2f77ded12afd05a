"""A device that lies, floods, stays silent or talks nonsense: one line, in time, and nothing of it stored as true."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hwbench
from hwbench.core.errors import HwbenchError
from hwbench.core.progress import no_tick
from hwbench.device.agent.environment import Environment
from hwbench.device.agent.message import PROTOCOL
from hwbench.device.transport.base import GARBLED, HUNG, WorkerLost, popen, printable
from hwbench.device.transport.local import Local
from hwbench.lut.journal import Journal
from hwbench.network.spec import Setting
from hwbench.profiler import answers, host
from hwbench.profiler.host import WorkerProcess
from hwbench.profiler.plan import Plan
from hwbench.profiler.resume import measure_into
from tests.profiler.engine import ONCE, items

HELLO = {"status": "ok", "protocol": PROTOCOL, "environment": {"runtime": "theirs"}}
LOADED = {
    "status": "ok", "load_ms": 1.0, "first_ms": 1.0, "inner": 1, "memory_bytes": 1, "memory_before_bytes": 1, "computes": "",
}  # fmt: skip
SAMPLED = {
    "status": "ok", "inner": 1, "readings_ns": [100.0, 101.0], "extra_ns": [], "canary_ns": 50.0, "empty_ns": 5.0,
    "other_cores": 0.0, "throttled": 0,
}  # fmt: skip
HONEST = {"hello": HELLO, "load": LOADED, "sample": SAMPLED}
SCRIPT = """
import json, sys
lines = {name: line.encode() for name, line in json.loads(sys.stdin.buffer.readline()).items()}
for request in sys.stdin.buffer:
    sys.stdout.buffer.write(lines[json.loads(request)["ask"]] + b"\\n")
    sys.stdout.buffer.flush()
"""
BAD_SAMPLES = [
    *({**SAMPLED, "readings_ns": each} for each in ([], [0.0], [-1.0], ["fast"], [[1.0]], [None], [1e30], "fast", None, 7)),
    *({**SAMPLED, "canary_ns": each} for each in (-1.0, 0, "x", [])),
    {**SAMPLED, "extra_ns": [-3.0]},
    {**SAMPLED, "throttled": "hot"},
    {**SAMPLED, "inner": -1},
    {**SAMPLED, "inner": 1.5},
    {name: value for name, value in SAMPLED.items() if name != "readings_ns"},
    {"status": "ok"},
    {"status": "fine"},
    {"status": "refused"},
    {"status": "refused", "reason": 7},
    {"status": "ok", "inner": 1, "instructions": [], "empty_instructions": None},
    {"status": "ok", "inner": 1, "instructions": [0], "empty_instructions": None},
    {},
]
BAD_LINES = [
    "", "null", "[]", "7", '"ok"', "{", "not json at all", '{"status": "ok"', "[" * 100_000, '{"a":' * 100_000,
    json.dumps(SAMPLED).replace("100.0", "NaN"), json.dumps(SAMPLED).replace("50.0", "Infinity"),
    json.dumps(SAMPLED) + json.dumps(SAMPLED), "\x00\x01", "\x1b[2J", "9" * 5000,
]  # fmt: skip


class Saying(Local):
    """A device whose worker answers every kind of request with one line of ours."""

    def __init__(self, **lines: dict | str) -> None:
        self._lines = {name: line if isinstance(line, str) else json.dumps(line) for name, line in {**HONEST, **lines}.items()}

    def start(self):
        process = popen([sys.executable, "-S", "-c", SCRIPT])
        process.stdin.write(json.dumps(self._lines).encode() + b"\n")
        return process


def test_an_honest_answer_is_taken_as_it_is():
    for asked, answer in HONEST.items():
        assert answers.checked(asked, json.dumps(answer).encode() + b"\n") == answer


@pytest.mark.parametrize("line", [*map(json.dumps, BAD_SAMPLES), *BAD_LINES], ids=lambda line: line[:40] or "empty")
def test_an_answer_that_is_none_is_garbled_or_no_sample(line):
    told = complaint(line)
    assert told is not None
    assert told.isprintable()
    assert len(told) < 1100


def complaint(line: str) -> str | None:
    """What the host says of a burst that is answered with that line."""
    try:
        answer = answers.checked("sample", line.encode() + b"\n")
    except WorkerLost as lost:
        return str(lost) if lost.status == GARBLED else None
    return host._sample(("key", 0, 0, "w"), answer, LOADED, False).complaint()


def test_an_honest_burst_is_no_complaint():
    assert complaint(json.dumps(SAMPLED)) is None


@pytest.mark.parametrize("said", [BAD_SAMPLES[0], BAD_SAMPLES[2], BAD_SAMPLES[-1], BAD_LINES[5], BAD_LINES[10]])
def test_nothing_of_a_lying_device_is_stored_as_true_and_an_honest_day_mends_it(tmp_path, said):
    """The journal of a bad run holds failures with their reason; the next run measures as if nothing had been."""
    journal = Journal(tmp_path / "theirs.samples.jsonl")
    here = Environment(HELLO["environment"])

    def run(transport: Saying) -> list:
        return measure_into(journal, items("ab"), Setting(), here, Plan(ONCE, "onnxruntime", transport=transport), no_tick)

    bad = run(Saying(sample=said))
    assert {sample.status for sample in bad} == {GARBLED}
    assert all("cannot be understood" in sample.reason for sample in bad)
    good = run(Saying())
    assert {(s.key, s.status) for s in good} == {("a", "ok"), ("b", "ok")}
    assert [s.readings_ns for s in good] == [(100.0, 101.0)] * len(good)


@pytest.mark.parametrize(
    "hello", [BAD_LINES[1], BAD_LINES[9], {"status": "ok"}, {**HELLO, "protocol": "five"}, {**HELLO, "environment": []}]
)
def test_a_worker_whose_first_word_is_none_is_not_used(hello):
    with pytest.raises(WorkerLost, match="cannot be understood") as lost:
        WorkerProcess("onnxruntime", 30, Saying(hello=hello))
    assert lost.value.status == GARBLED


def test_what_a_device_says_reaches_no_terminal_as_a_command():
    evil = "\x1b[2J\x1b]0;owned\x07 out of\nmemory" + "x" * 5000
    worker = WorkerProcess("onnxruntime", 30, Saying(load={"status": "refused", "reason": evil}))
    try:
        reason = worker.ask({"ask": "load"})["reason"]
    finally:
        worker.close(kill=True)
    assert reason.isprintable()
    assert "out of memory" in reason
    assert len(reason) < 1100
    assert printable("plain words, ümlauts and all") == "plain words, ümlauts and all"


def test_a_device_that_writes_without_end_is_given_up():
    class Flood(Local):
        def start(self):
            return popen([sys.executable, "-S", "-c", "import os\nwhile True: os.write(1, b'x' * 65536)"])

    started = time.monotonic()
    with pytest.raises(WorkerLost, match="longer than 16777216 bytes") as lost:
        WorkerProcess("onnxruntime", 300, Flood())
    assert lost.value.status == GARBLED
    assert time.monotonic() - started < 200  # long before its time is up


def test_a_device_that_trickles_is_given_up_when_its_time_is_up():
    class Trickle(Local):
        def start(self):
            script = "import os, time\nwhile True:\n    os.write(1, b' ')\n    time.sleep(0.01)"
            return popen([sys.executable, "-S", "-c", script])

    with pytest.raises(WorkerLost, match=r"no answer within 0\.3 s") as lost:
        WorkerProcess("onnxruntime", 0.3, Trickle())
    assert lost.value.status == HUNG


def test_a_device_that_takes_nothing_in_is_given_up(tmp_path):
    class Deaf(Saying):
        shares_files = False

        def start(self):
            script = (
                f"import sys, time; sys.stdin.buffer.raw.readline(); print({json.dumps(HELLO)!r}, flush=True); time.sleep(600)"
            )
            return popen([sys.executable, "-S", "-c", script])

    large = tmp_path / "large"
    large.write_bytes(bytes(1 << 22))
    worker = WorkerProcess("onnxruntime", 0.5, Deaf())
    try:
        with pytest.raises(WorkerLost, match=r"took in nothing for 0\.5 s"):
            worker.deliver(str(large), "0" * 64)
    finally:
        worker.close(kill=True)


def test_a_worker_ends_with_its_host_while_a_model_does_not_return(tmp_path):
    """The host is killed by -9 while its worker sleeps in a request."""
    script = tmp_path / "host.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "code = 'from hwbench.device.agent import worker; import time; worker.end_with_parent(); "
        "print(1, flush=True); time.sleep(600)'\n"
        "child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    own = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    owner = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=own)
    child = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the worker outlived its host")


def test_lines_that_no_sample_can_be_are_set_aside_with_their_reason(tmp_path):
    """A journal of a hwbench that believed everything: measuring goes on, and what was wrong is kept beside it."""
    journal = Journal(tmp_path / "theirs.samples.jsonl")
    here = Environment(HELLO["environment"])

    def run() -> list:
        return measure_into(journal, items("ab"), Setting(), here, Plan(ONCE, "onnxruntime", transport=Saying()), no_tick)

    whole = run()
    lines = journal.path.read_text().splitlines(keepends=True)
    spoilt = json.loads(lines[1])
    bad = [
        json.dumps({**spoilt, "readings_ns": [-5.0]}), json.dumps({**spoilt, "readings_ns": []}),
        json.dumps(spoilt).replace("100.0", "NaN"), "no line at all", "[" * 100_000,
    ]  # fmt: skip
    journal.path.write_text("".join([lines[0], *(f"{line}\n" for line in bad), *lines[1:]]))
    with pytest.raises(HwbenchError, match="line 2 is not a sample"):
        list(journal.read())
    assert run() == []  # nothing is lacking
    assert journal.path.read_text() == "".join(lines)
    aside = [json.loads(line) for line in (tmp_path / "theirs.samples.set-aside.jsonl").read_text().splitlines()]
    assert [entry["line"] for entry in aside] == [2, 3, 4, 5, 6]
    assert [entry["was"] for entry in aside] == bad
    assert aside[0]["reason"] == "readings_ns holds -5.0, which is no time or count above 0"
    assert [entry.sample for entry in journal.matching(here)] == whole
