"""What was flushed to the journal survives: torn lines, full disks, second writers and kills cost nothing stored before."""

from __future__ import annotations

import json

import pytest

from hwbench.engine.host import Sample
from hwbench.environment import Environment
from hwbench.errors import DataError, MeasurementError
from hwbench.journal import Journal
from hwbench.network import Setting

HERE = Environment({"machine": "x86_64", "cpu_model": "A", "isa": ["avx2"], "runtime": "onnxruntime", "kernel": "6.1"})
NEW_KERNEL = Environment({**HERE.values, "kernel": "6.2"})
ELSEWHERE = Environment({**HERE.values, "cpu_model": "B"})
SAMPLES = (
    Sample("gelu(dim=4,tokens=3)", 0, 0, "w0", "ok", (1200.5, 1300.0), 7, 3.25, 0.5),
    Sample("gelu(dim=4,tokens=3)", 0, 1, "w0", "ok", (1100.0,), 7, 3.25, 0.5),
    Sample("relu(dim=4,tokens=3)", 1, -1, "w1", "crashed", reason="worker ended by signal 9"),
)


def filled(path) -> Journal:
    journal = Journal(path / "onnxruntime.samples.jsonl")
    with journal.writer() as writer:
        for sample in SAMPLES:
            writer.append(sample, Setting(), HERE)
    return journal


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_appended_is_read_back_in_order(tmp_path):
    journal = filled(tmp_path)
    assert list(journal.samples(Setting(), HERE)) == list(SAMPLES)
    with journal.writer() as writer:
        writer.append(SAMPLES[0], Setting(threads=2), NEW_KERNEL)
        writer.append(SAMPLES[1], Setting(), ELSEWHERE)
    assert list(journal.samples(Setting(), HERE)) == list(SAMPLES)
    assert list(journal.samples(Setting(threads=2), HERE)) == [SAMPLES[0]]  # another kernel may be mixed
    assert list(journal.samples(Setting(), ELSEWHERE)) == [SAMPLES[1]]  # another CPU may not
    assert [entry["setting"] for entry in journal.read()][3:] == ["fp32-b1-t2-back-to-back", "fp32-b1-t1-back-to-back"]


def test_a_journal_that_is_not_there_is_empty(tmp_path):
    journal = Journal(tmp_path / "none.samples.jsonl")
    assert (list(journal.read()), journal.environments()) == ([], {})


def test_a_torn_last_line_is_dropped_wherever_it_was_cut(tmp_path):
    journal = filled(tmp_path)
    whole = journal.path.read_bytes()
    entries = list(journal.read())
    for cut in range(len(whole)):
        journal.path.write_bytes(whole[:cut])
        left = whole[:cut].count(b"\n")
        assert list(journal.read()) == entries[:left]
        with journal.writer() as writer:
            assert journal.path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:left])
            writer.append(SAMPLES[2], Setting(), HERE)
        assert list(journal.samples(Setting(), HERE)) == [*SAMPLES[:left], SAMPLES[2]]


def test_a_torn_line_longer_than_one_read_is_dropped(tmp_path):
    journal = filled(tmp_path)
    kept = journal.path.read_bytes()
    with journal.path.open("ab") as stream:
        stream.write(b'{"version":1,' + b" " * 200_000)
    with journal.writer():
        assert journal.path.read_bytes() == kept


OPEN = """
import sys
from pathlib import Path
from hwbench.errors import HwbenchError
from hwbench.journal import Journal
try:
    with Journal(Path(sys.argv[1])).writer():
        print("wrote")
except HwbenchError as error:
    print(error)
"""


def test_a_second_writer_is_refused_and_a_later_one_is_not(tmp_path, python):
    journal = filled(tmp_path)
    with journal.writer():
        refused = python(OPEN, journal.path)
    assert refused.stdout == f"Another hwbench is writing {journal.path}; wait for it or use another --workspace.\n"
    assert python(OPEN, journal.path).stdout == "wrote\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"version":2,"key":"x"}\n', "line 4 has a newer format: update hwbench."),
        (b'{"version":1,"ke\n', "line 4 is not a sample"),
        (b"\xff\xfe\n", "line 4 is not a sample"),
        (b"17\n", "line 4 is not a sample"),
        (b'{"key":"x"}\n', "line 4 is not a sample"),
    ],
)
def test_whole_lines_that_are_no_samples_are_named(tmp_path, line, message):
    journal = filled(tmp_path)
    with journal.path.open("ab") as stream:
        stream.write(line)
    with pytest.raises(DataError) as error:
        list(journal.read())
    assert message in one_line(error)
    assert str(journal.path) in str(error.value)


def test_each_environment_stands_once_in_a_file_shared_by_the_journals_of_a_folder(tmp_path):
    for name in ("onnxruntime", "onnxruntime.networks"):
        with Journal(tmp_path / f"{name}.samples.jsonl").writer() as writer:
            for environment in (HERE, NEW_KERNEL, HERE, ELSEWHERE):
                writer.append(SAMPLES[0], Setting(), environment)
    stored = json.loads((tmp_path / "environments.json").read_text())
    assert stored == {e.hash: dict(e.values) for e in (HERE, NEW_KERNEL, ELSEWHERE)}


ADD_AT_ONCE = """
import subprocess, sys
from pathlib import Path
from hwbench.environment import Environment
from hwbench.journal import Journal
folder, *who = sys.argv[1:]
if not who:
    running = [subprocess.Popen([*sys.orig_argv, name]) for name in "ab"]
    sys.exit(max(process.wait() for process in running))
for number in range(40):
    Journal(Path(folder) / f"{who[0]}.samples.jsonl").add_environment(Environment({"cpu_model": who[0], "number": number}))
"""


def test_two_journals_that_add_environments_at_once_lose_none(tmp_path, python):
    done = python(ADD_AT_ONCE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(Journal(tmp_path / "a.samples.jsonl").environments()) == 80


def test_samples_of_an_environment_nobody_stored_are_refused(tmp_path):
    journal = filled(tmp_path)
    (tmp_path / "environments.json").unlink()
    with pytest.raises(DataError) as error:
        list(journal.samples(Setting(), HERE))
    assert f"environment {HERE.hash} is not in environments.json" in one_line(error)


FULL_DISK = """
import resource, sys
from pathlib import Path
from hwbench.engine.host import Sample
from hwbench.environment import Environment
from hwbench.errors import HwbenchError
from hwbench.journal import Journal
from hwbench.network import Setting

path, after, room = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
try:
    with Journal(path).writer() as writer:
        for number in range(after + 3):
            if number == after:  # from here on the operating system takes no byte beyond this size
                limit = (path.stat().st_size if path.exists() else 0) + room
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            sample = Sample("gelu(dim=4,tokens=3)", 0, number, "w", "ok", (1000.0,), 1)
            writer.append(sample, Setting(), Environment({"cpu_model": "A"}))
    print("all written")
except HwbenchError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(
    ("after", "room", "file", "reason"),
    [
        (5, 0, "onnxruntime.samples.jsonl", "File too large"),
        (5, 40, "onnxruntime.samples.jsonl", "the disk took only a part of a sample"),
        (0, 0, "environments.json", "File too large"),
    ],
)
def test_a_full_disk_is_one_line_and_costs_nothing_stored_before(tmp_path, python, after, room, file, reason):
    path = tmp_path / "onnxruntime.samples.jsonl"
    done = python(FULL_DISK, path, after, room)
    assert (done.returncode, done.stderr) == (MeasurementError.exit_code, "")
    assert done.stdout == (
        f"Cannot write {tmp_path / file}: {reason}. "
        "Nothing stored before is lost; free the disk or choose another --workspace.\n"
    )
    assert [entry["round"] for entry in Journal(path).read()] == list(range(after))
    assert python(FULL_DISK, path, 0, 1 << 20).returncode == 0  # the disk has room again
    assert [entry["round"] for entry in Journal(path).read()] == [*range(after), 0, 1, 2]
    assert list(tmp_path.glob("*.part")) == list(tmp_path.glob(".*.part")) == []


@pytest.mark.parametrize("place", ["proc", "file", "folder"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, place):
    """Root may write anywhere but here: the kernel's own files, below a file, over a folder."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.samples.jsonl").mkdir()
    path = {
        "proc": "/proc/hwbench/onnxruntime.samples.jsonl",
        "file": tmp_path / "file" / "onnxruntime.samples.jsonl",
        "folder": tmp_path / "folder.samples.jsonl",
    }[place]
    with pytest.raises(MeasurementError) as error, Journal(type(tmp_path)(path)).writer():
        pytest.fail("it was written")
    assert one_line(error).startswith(f"Cannot write {path}: ")
