"""What was flushed to the journal survives: torn lines, full disks, second writers and kills cost nothing stored before."""

from __future__ import annotations

import json
import os

import pytest

from hwbench.core.errors import DataError, MeasurementError
from hwbench.device.agent.environment import Environment
from hwbench.lut.journal import Journal
from hwbench.lut.sample import Sample
from hwbench.network.spec import Setting

HERE = Environment({"machine": "x86_64", "cpu_model": "A", "isa": ["avx2"], "runtime": "onnxruntime", "kernel": "6.1"})
NEW_KERNEL = Environment({**HERE.values, "kernel": "6.2"})
ELSEWHERE = Environment({**HERE.values, "cpu_model": "B"})
SAMPLES = (
    Sample("gelu(dim=4,tokens=3)", 0, 0, "w0", "ok", (1200.5, 1300.0), 7, 40.5, 2.25, 0.0, 0, (), False, 3.25, 0.5),
    Sample("gelu(dim=4,tokens=3)", 0, 1, "w0", "ok", (1100.0,), 7, 41.5, 2.5, 0.75, 2, (900.0, 900.5), True, 3.25, 0.5),
    Sample("relu(dim=4,tokens=3)", 1, -1, "w1", "crashed", reason="worker ended by signal 9"),
)


def filled(path) -> Journal:
    journal = Journal(path / "onnxruntime.samples.jsonl")
    with journal.writer() as writer:
        for sample in SAMPLES:
            writer.append(sample, Setting(), HERE)
    return journal


def samples(journal: Journal, setting: Setting, environment: Environment) -> list[Sample]:
    return [entry.sample for entry in journal.matching(environment) if entry.setting == setting.key]


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_appended_is_read_back_in_order(tmp_path):
    journal = filled(tmp_path)
    assert samples(journal, Setting(), HERE) == list(SAMPLES)
    with journal.writer() as writer:
        writer.append(SAMPLES[0], Setting(threads=2), NEW_KERNEL)
        writer.append(SAMPLES[1], Setting(), ELSEWHERE, edition=3)
    assert samples(journal, Setting(), HERE) == list(SAMPLES)
    assert samples(journal, Setting(threads=2), HERE) == [SAMPLES[0]]  # another kernel may be mixed
    assert samples(journal, Setting(), ELSEWHERE) == [SAMPLES[1]]  # another CPU may not
    assert [entry["setting"] for entry in journal.read()][3:] == ["fp32-b1-t2-back-to-back", "fp32-b1-t1-back-to-back"]
    everything = list(journal.matching())
    assert [entry.sample for entry in everything] == [*SAMPLES, SAMPLES[0], SAMPLES[1]]
    assert [entry.edition for entry in everything] == [1, 1, 1, 1, 3]
    assert [entry.environment for entry in everything] == [HERE, HERE, HERE, NEW_KERNEL, ELSEWHERE]
    assert all(entry.taken_at.endswith("+00:00") for entry in everything)


def test_what_a_machine_did_not_tell_is_not_stored_and_what_it_told_is(tmp_path):
    """0 cores busy and 0 throttle events are readings; None is the absence of one."""
    journal = filled(tmp_path)
    told, _, failed = journal.read()
    assert (told["other_cores"], told["throttled"]) == (0.0, 0)
    assert not {"link", "extra_ns"} & set(told)
    assert {"readings_ns", "extra_ns", "canary_ns", "empty_ns", "other_cores", "throttled", "link", "load_ms"} & set(
        failed
    ) == set()
    silent = Sample("gelu(dim=4,tokens=3)", 0, 2, "w0", "ok", (1100.0,), 7)
    with journal.writer() as writer:
        writer.append(silent, Setting(), HERE)
    assert samples(journal, Setting(), HERE)[-1] == silent


def test_readings_are_stored_as_read_to_a_tenth_of_a_nanosecond(tmp_path):
    journal = Journal(tmp_path / "onnxruntime.samples.jsonl")
    with journal.writer() as writer:
        writer.append(Sample("k", 0, 0, "w", "ok", (1234.56789, 0.06, 3e9), 1), Setting(), HERE)
    assert samples(journal, Setting(), HERE)[0].readings_ns == (1234.6, 0.1, 3e9)


FIRST_FORMAT = (
    '{"version":1,"key":"gelu(dim=4,tokens=3)","setting":"fp32-b1-t1-back-to-back","process":2,"round":7,"worker":"w5",'
    '"environment":"%s","taken_at":"2026-11-16T10:00:00+00:00","status":"ok","samples_ns":[1500.0,1200.5],"inner":7,'
    '"load_ms":3.25,"first_ms":0.5}\n'
    '{"version":1,"key":"relu(dim=4,tokens=3)","setting":"fp32-b1-t1-back-to-back","process":0,"round":-1,"worker":"w5",'
    '"environment":"%s","taken_at":"2026-11-16T10:00:01+00:00","status":"hung","reason":"no answer within 120 s"}\n'
)


def test_lines_of_the_first_format_are_read_as_readings_of_the_first_edition(tmp_path):
    journal = filled(tmp_path)
    before = FIRST_FORMAT.replace("%s", HERE.hash).encode()
    journal.path.write_bytes(before)
    old, hung = journal.matching(HERE)
    expected = Sample("gelu(dim=4,tokens=3)", 2, 7, "w5", "ok", (1500.0, 1200.5), 7, load_ms=3.25, first_ms=0.5)
    assert (old.sample, old.edition, old.taken_at) == (expected, 1, "2026-11-16T10:00:00+00:00")
    assert (old.sample.value_ns, old.sample.canary_ns, old.sample.link) == (1350.25, None, False)
    assert (hung.sample.status, hung.sample.reason, hung.sample.readings_ns) == ("hung", "no answer within 120 s", ())
    with journal.writer() as writer:
        writer.append(SAMPLES[0], Setting(), HERE, edition=2)
    assert journal.path.read_bytes().startswith(before)  # formats stand side by side
    assert samples(journal, Setting(), HERE) == [expected, hung.sample, SAMPLES[0]]


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
        assert samples(journal, Setting(), HERE) == [*SAMPLES[:left], SAMPLES[2]]


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
from hwbench.core.errors import HwbenchError
from hwbench.lut.journal import Journal
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
    told = f"Another hwbench (process {os.getpid()}) is writing {journal.path}; wait for it, or write elsewhere"
    assert refused.stdout.startswith(told)
    assert python(OPEN, journal.path).stdout == "wrote\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"version":4,"key":"x"}\n', "holds samples of a newer format: update hwbench."),
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
from hwbench.device.agent.environment import Environment
from hwbench.lut.journal import Journal
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
        list(journal.matching(HERE))
    assert f"environment {HERE.hash} is not in environments.json" in one_line(error)


FULL_DISK = """
import resource, sys
from pathlib import Path
from hwbench.lut.sample import Sample
from hwbench.device.agent.environment import Environment
from hwbench.core.errors import HwbenchError
from hwbench.lut.journal import Journal
from hwbench.network.spec import Setting

path, after, room, worker = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
try:
    with Journal(path).writer() as writer:
        for number in range(after + 3):
            if number == after:  # from here on the operating system takes no byte beyond this size
                limit = (path.stat().st_size if path.exists() else 0) + room
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            sample = Sample("gelu(dim=4,tokens=3)", 0, number, worker, "ok", (1000.0,), 1)
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
        (5, 40, "onnxruntime.samples.jsonl", "the disk took only a part of a line"),
        (0, 0, "environments.json", "File too large"),
    ],
)
def test_a_full_disk_is_one_line_and_costs_nothing_stored_before(tmp_path, python, after, room, file, reason):
    path = tmp_path / "onnxruntime.samples.jsonl"
    done = python(FULL_DISK, path, after, room, "w")
    assert (done.returncode, done.stderr) == (MeasurementError.exit_code, "")
    assert done.stdout == (
        f"Cannot write {tmp_path / file}: {reason}. "
        "Nothing stored before is lost; free the disk or choose another --workspace.\n"
    )
    assert [entry["round"] for entry in Journal(path).read()] == list(range(after))
    assert python(FULL_DISK, path, 0, 1 << 20, "v").returncode == 0  # the disk has room again
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
