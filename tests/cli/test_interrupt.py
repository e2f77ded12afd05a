"""Ctrl-C in a verb that runs in a process of its own, as a terminal sends it: to the whole group of processes.

One line says what is kept and the command that goes on, the code is 130, nothing is left running, and the command works. All
verbs run without a terminal here, so their logs must hold progress, and nothing of it may be on stdout.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import hwbench
from hwbench.space.export import export
from hwbench.space.sample import sample

PACKAGE = str(Path(hwbench.__file__).parent.parent)
SPACE = "autoformer-tiny:image=32"
MINE = """
import os, time

def evaluate(architecture):
    time.sleep(float(os.environ["SECONDS"]))
    return 60 + architecture["depth"]
"""


def answer_ctrl_c() -> None:
    """A shell starts jobs in the background with the signal ignored, and those below inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Verb:
    """A verb in a group of processes of its own."""

    def __init__(self, folder: Path, *words: object, seconds: float = 0.0) -> None:
        self.folder, self.log, self.out = folder, folder / "log", folder / "out"
        environment = {**os.environ, "PYTHONPATH": PACKAGE, "SECONDS": str(seconds)}
        environment.pop("COLUMNS", None)
        with self.log.open("wb") as log, self.out.open("wb") as out:
            command = [sys.executable, "-W", "error", "-m", "hwbench", *map(str, words)]
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": log}
            how = {"start_new_session": True, "preexec_fn": answer_ctrl_c}
            self.process = subprocess.Popen(command, cwd=folder, env=environment, **streams, **how)

    def wait_for(self, seen: Callable[[], bool]) -> None:
        while not seen():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def logged(self, text: str) -> bool:
        return text in self.log.read_text()

    def interrupt(self) -> str:
        """Ends it as Ctrl-C does; the last line of its log."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(timeout=120) == 130, self.log.read_text()
        _, left = psutil.wait_procs(below, timeout=30)
        assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]
        *progress, last = self.log.read_text().splitlines()
        assert all(re.match(r"\[\d+:\d\d\] \w", line) for line in progress), progress
        return last

    def end(self) -> str:
        """What it prints when nobody stops it."""
        assert self.process.wait(timeout=300) == 0, self.log.read_text()
        return self.out.read_text()


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def pasted(last: str) -> list[str]:
    """The words behind `hwbench` of the command a line ends in."""
    return shlex.split(last.partition(" run: ")[2])[1:]


@pytest.fixture
def knowing(machine, tmp_path) -> None:
    """The folder of a test knows this machine, whose peaks are not measured first."""
    shutil.copytree(machine, tmp_path, dirs_exist_ok=True)


@pytest.mark.slow
def test_a_profile(knowing, tmp_path):
    asked = ("profile", "--space", SPACE, "--precision", "0.000001", "--max-seconds", "600", "--workspace", ".")
    verb = Verb(tmp_path, *asked)
    verb.wait_for(lambda: any(lines(path) > 2 for path in tmp_path.glob("luts/*/*.samples.jsonl")))
    verb.wait_for(lambda: verb.logged("] profiling"))
    last = verb.interrupt()
    (journal,) = tmp_path.glob("luts/*/*.samples.jsonl")
    kept = re.fullmatch(r"hwbench: Interrupted\. Kept: (\d+) bursts measured now, in (\S+)\. To go on, run: (.*)", last)
    assert (tmp_path / kept[2]).samefile(journal)
    assert 0 <= lines(journal) - int(kept[1]) <= 1  # the signal may come between a line and its count
    assert pasted(last) == list(asked)
    short = [{"0.000001": "1", "600": "0"}.get(word, word) for word in pasted(last)]
    found = json.loads(Verb(tmp_path, *short, "--json").end())
    assert (found["failed"], found["rows"]) == ({}, 18)
    assert lines(journal) - found["measured_rounds"] - int(kept[1]) in (0, 1)  # it went on from there


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_search_with_an_accuracy_of_the_users_own(tmp_path, workers):
    (tmp_path / "mine.py").write_text(MINE)
    asked = ("search", "--space", "autoformer-tiny", "--out", "found", "--limit", "params_m=6.5")
    asked += ("--accuracy", "mine.py:evaluate", "--evaluations", "30", "--workers", workers, "--json")
    verb = Verb(tmp_path, *asked, seconds=0.3)
    journal = tmp_path / "found" / "accuracies.jsonl"
    verb.wait_for(lambda: lines(journal) > 3 and verb.logged("] searching"))
    last = verb.interrupt()
    kept = re.fullmatch(
        r"hwbench: Interrupted\. Kept: \d+ of 30 evaluations, in found; (\d+) accuracies, in found/accuracies\.jsonl\. "
        r"To go on, run: .*",
        last,
    )
    assert 1 <= lines(journal) - int(kept[1]) <= 2  # the first line says what they are
    (document,) = verb.out.read_text().splitlines()  # progress is not on stdout
    assert json.loads(document) == {"error": "Interrupted", "message": last.removeprefix("hwbench: ")}
    assert pasted(last) == list(asked)
    (found,) = Verb(tmp_path, *pasted(last)).end().splitlines()
    assert json.loads(found)["search"]["evaluated"] == 30


@pytest.mark.slow
def test_a_measurement_of_which_nothing_is_kept(knowing, tmp_path):
    sample(SPACE, 1, out=tmp_path / "archs.json")
    export(SPACE, tmp_path / "archs.json", tmp_path / "model.onnx")
    asked = ("measure", "model.onnx", "--precision", "0.000001", "--max-processes", "99")
    verb = Verb(tmp_path, *asked)
    verb.wait_for(lambda: verb.logged("] measuring"))
    last = verb.interrupt()
    assert last == f"hwbench: Interrupted; of this command nothing is kept. To start again, run: hwbench {shlex.join(asked)}"


ON_A_TERMINAL = """
from hwbench.cli import _console as console

with console.progress("profiling") as tick:
    tick(3, 12)
print("done")
"""


def test_progress_on_a_terminal():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": PACKAGE, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-W", "error", "-c", ON_A_TERMINAL]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.stdout == "done\n"
    assert "profiling" in shown
    assert "3 of 12 (25 %)" in shown
