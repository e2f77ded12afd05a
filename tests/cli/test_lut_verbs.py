"""hwbench lut diff | history | show: what is printed, one JSON document, and one line for every bad name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.lut import app
from hwbench.device import files
from hwbench.device.agent.environment import Environment
from hwbench.lut.fold import fold
from hwbench.lut.journal import Journal
from hwbench.lut.sample import Sample
from hwbench.network.spec import OpSpec, Setting

GELU, RELU, ADD, *_ = OPS = [OpSpec.of(op, tokens=3, dim=dim).key for dim in (4, 5) for op in ("gelu", "relu", "add")]
HERE = Environment({"machine": "x86_64", "cpu_model": "A [b]1", "runtime": "onnxruntime", "runtime_version": "1.30"})
NEWER = Environment({**HERE.values, "runtime_version": "1.31"})
AT = Setting().key


def measured(folder: Path, rows: dict[str, float], edition: int = 1, environment: Environment = HERE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with Journal(folder / "onnxruntime.samples.jsonl").writer() as writer:
        for key, ms in rows.items():
            for process in range(3):
                sample = Sample(key, process, 0, f"w{process}", "ok", (ms * 1e6 * (1 + process / 1000),))
                writer.append(sample, Setting(), environment, edition)
    return folder / "onnxruntime.parquet"


def run(*arguments: object) -> str:
    done = CliRunner(env={"COLUMNS": "220"}).invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def path(tmp_path):
    """Two editions: one row slower, one only in the first; and one of a newer runtime."""
    file = measured(tmp_path, {GELU: 2.0, RELU: 1.0, ADD: 3.0})
    measured(tmp_path, {GELU: 2.2, RELU: 1.0}, edition=2)
    measured(tmp_path, {GELU: 1.0, RELU: 1.0}, environment=NEWER)
    fold(Journal(tmp_path / "onnxruntime.samples.jsonl"), file, HERE, 0.01)
    return file


def test_diff_lists_what_changed_and_counts_the_rest(path):
    shown = run("diff", f"{path}@1", f"{path}@2")
    assert "2 rows in both: 1 slower, 0 faster, 1 same, 0 unclear; 1 only in A, 0 only in B, 0 failed." in shown
    assert f"  only in A: {ADD} {AT}" in shown
    (line,) = (line for line in shown.splitlines() if GELU in line)
    assert [cell.strip() for cell in line.strip("│ ").split("│")][1:7] == ["2", "2.2", "10", "2", "4.881", "slower"]
    assert RELU not in shown
    assert "UNLIKE" not in shown
    assert RELU in run("diff", f"{path}@1", f"{path}@2", "--all", "--setting", AT)


def test_diff_names_unlike_environments_first(path):
    lines = run("diff", path, f"{path}@3").splitlines()
    assert lines[:3] == [f"A: {path}", f"B: {path}@3", "UNLIKE ENVIRONMENTS: runtime_version is '1.30' in A, '1.31' in B"]


def test_diff_without_a_change_prints_no_table_and_shortens_long_lists(tmp_path):
    a = measured(tmp_path / "a", dict.fromkeys(OPS, 1.0))
    b = measured(tmp_path / "b", {GELU: 1.0})
    shown = run("diff", f"{a}@1", f"{b}@1")
    assert "1 rows in both: 0 slower, 0 faster, 1 same" in shown
    assert "│" not in shown
    assert shown.splitlines()[-1] == "  only in A: 1 more (--all lists them)"
    assert run("diff", f"{a}@1", f"{b}@1", "--all").count("only in A: ") == 5


def test_diff_as_json_has_every_row(path):
    document = json.loads(run("diff", f"{path}@1", f"{path}@2", "--json"))
    assert [(row["key"], row["answer"]) for row in document["rows"]] == [(GELU, "slower"), (RELU, "same")]
    assert document["only_a"] == [{"key": ADD, "setting": AT}]
    assert (document["a"], document["environment"], document["counts"]["slower"]) == (f"{path}@1", [], 1)
    other = json.loads(run("diff", f"{path}@1", f"{path}@3", "--json"))
    assert other["environment"] == [{"name": "runtime_version", "a": "1.30", "b": "1.31", "checked": True}]


def test_history_lists_editions(path):
    shown = run("history", path)
    assert [name in shown for name in ("@1", "@2", "@3", "@4")] == [True, True, True, False]
    assert "A [b]1" in shown, "a CPU may be called like markup"
    document = json.loads(run("history", path, "--json"))
    assert document["table"] == str(path)
    assert [(e["number"], e["edition"], e["rows"]) for e in document["editions"]] == [(1, 1, 3), (2, 2, 2), (3, 1, 2)]


def test_history_of_this_machine_is_the_default(tmp_path):
    folder = tmp_path / "luts" / files.local_name()
    file = measured(folder, {GELU: 2.0})
    fold(Journal(folder / "onnxruntime.samples.jsonl"), file, HERE, 0.01)
    document = json.loads(run("history", "--workspace", tmp_path, "--json"))
    assert document["table"] == str(file.resolve())
    assert len(document["editions"]) == 1
    (folder / "onnxruntime.samples.jsonl").write_bytes(b"")
    assert run("history", file) == f"The journal beside {file} is empty.\n"


def test_show_has_the_rows_of_a_table_or_an_edition(path):
    assert [GELU in run("show", path), ADD in run("show", path), ADD in run("show", f"{path}@2")] == [True, True, False]
    document = json.loads(run("show", f"{path}@1", "--json"))
    assert document["environment"] == dict(HERE.values)
    assert [(row["key"], row["latency_min_ms"], row["verdict"]) for row in document["rows"]] == [
        (ADD, 3.0, "stable"),
        (GELU, 2.0, "stable"),
        (RELU, 1.0, "stable"),
    ]


def test_a_bad_name_is_one_line_and_one_document(path):
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    command = [sys.executable, "-m", "hwbench.cli.main", "lut", "diff", str(path), f"{path}@9", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("["))  # where it is slow, it tells of progress
    assert line.startswith(f"hwbench: {path} has no edition '@9'; there is @1 (edition 1, 3 rows, ")
    assert json.loads(done.stdout)["error"] == "UsageError"
