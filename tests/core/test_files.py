"""Whole files or none, one writer at a time, scratch folders that do not stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hwbench
from hwbench.core import files
from hwbench.core.errors import DataError, MeasurementError, UsageError
from hwbench.core.files import check_seal, only_writer, read_json, read_toml, replacing, scratch_folder, write_sealed
from hwbench.core.progress import watched
from hwbench.core.workspace import Workspace

HOLD = """
import sys, time
from pathlib import Path
from hwbench.core import files
with getattr(files, sys.argv[1])(*map(Path, sys.argv[2:])) as held:
    print(held, flush=True)
    time.sleep(600)
"""


def holding(what: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """A process that holds it until it is killed; its first line has been read."""
    found = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1]), **environment}
    command = [sys.executable, "-c", HOLD, what, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=found)


def test_the_second_writer_is_refused_by_name_of_the_first(tmp_path):
    path = tmp_path / "out" / "trials.jsonl"
    first = holding("only_writer", path)
    assert first.stdout is not None
    first.stdout.readline()
    with (
        pytest.raises(MeasurementError, match=rf"Another hwbench \(process {first.pid}\) is writing {path}"),
        only_writer(path),
    ):
        pass
    first.kill()
    first.wait()
    first.stdout.close()
    with only_writer(path):  # a lock ends with its process
        pass


def test_a_link_planted_beside_a_file_is_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "model.onnx"
    victim.write_text("precious")
    (tmp_path / ".model.onnx.part").symlink_to(victim)
    with replacing(path) as stream:
        stream.write(b"new")
    assert (path.read_bytes(), victim.read_text()) == (b"new", "precious")


def test_where_writing_fails_the_file_stays_as_it_was(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("old")

    def fail_half_way() -> None:
        with replacing(path) as stream:
            stream.write(b"new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_text() == "old"


def test_scratch_of_a_killed_run_is_removed_by_the_next_and_that_of_a_living_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(files, "YOUNG_S", -1.0)
    processes = [holding("scratch_folder", TMPDIR=str(tmp_path)) for _ in range(2)]
    dead, alive = (Path(process.stdout.readline().strip()) for process in processes)
    (dead / "model.onnx").write_text("large")
    processes[0].kill()
    processes[0].wait()
    other = tmp_path / "hwbench-of-somebody-else"
    other.mkdir()
    with scratch_folder():
        assert not dead.exists()
        assert alive.exists()
        assert other.exists()
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    started = time.monotonic()
    with pytest.raises(DataError, match="is no file"):
        read_json(tmp_path / "pipe", "architecture file")
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65])
def test_json_is_as_deep_as_ours_at_most(tmp_path, text):
    (tmp_path / "deep.json").write_text(text)
    with pytest.raises(DataError, match="nested too deep"):
        read_json(tmp_path / "deep.json", "card")
    (tmp_path / "wide.json").write_text("[" + "[1]," * 1000 + "[" * 60 + "]" * 61)
    assert len(read_json(tmp_path / "wide.json", "card")) == 1001


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "1e999", "-1e999", "1" * 5000, '"\\ud800"', "{} {}", "{'a': 1}", "\ufeff{}"]
)
def test_what_is_no_json_is_one_line(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"^card \S+ is not readable JSON \(.*\); make it\.$"):
        read_json(tmp_path / "a.json", "card", "make it.")


@pytest.mark.parametrize("text", ["[", "a = 1\na = 2", "a = " + "[" * 100_000, "a = " + "[" * 70 + "]" * 70, "\x00"])
def test_what_is_no_toml_is_one_line(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(DataError, match=r"^device file \S+ is not readable TOML \("):
        read_toml(tmp_path / "a.toml", "device file")


DOCUMENT = {"b": [1, 2.5, None], "a": {"x": float("nan"), 3: "\u00e9"}}


def test_a_sealed_document_is_read_as_it_was_written_and_an_edited_one_is_not(tmp_path):
    path = tmp_path / "a.json"
    write_sealed(path, DOCUMENT)
    stored = read_json(path, "card")
    plain = {"b": [1, 2.5, None], "a": {"x": None, "3": "\u00e9"}}
    with watched() as work:
        assert check_seal(stored, path, "Card", "make it.", True) == plain
        assert check_seal(plain, path, "Card", "make it.", False) == plain
    assert work.notes == [f"{path} states no hash, as an older hwbench wrote it: whether it was edited since cannot be told"]
    for edited in ({**stored, "c": 1}, {**stored, "b": [1, 2.5]}, {**stored, "sha256": None}, plain):
        with pytest.raises(DataError, match=r"^Card \S+ was edited after hwbench wrote it \(.*\)\. Restore it, or make it\.$"):
            check_seal(edited, path, "Card", "make it.", True)
    write_sealed(path, stored)  # a hash of before is no content
    assert read_json(path, "card") == stored


@pytest.mark.parametrize("folder", ["~nosuchuser/x", "loop/x", "x" * 300])
def test_a_workspace_that_cannot_be_reached_is_one_line(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises((UsageError, MeasurementError)) as error:
        Workspace.at(folder).folder("devices")
    assert "\n" not in str(error.value)
