"""hwbench device check: one JSON document or a table and a verdict, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.device import app
from hwbench.device.health import Finding


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1]), "TMPDIR": str(folder), "HOME": str(folder)}
    command = [sys.executable, "-m", "hwbench.cli.main", "device", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, timeout=300)


def test_json_is_one_document_and_nothing_is_left_behind(tmp_path):
    done = check(tmp_path, "--seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert sorted(document) == ["findings", "verdict"]
    assert document["verdict"] in ("fit", "usable", "unfit")
    assert len(document["findings"]) == 10
    assert all(sorted(finding) == ["advice", "found", "name", "status"] for finding in document["findings"])
    assert not list(tmp_path.iterdir())


def test_a_length_that_is_none_is_one_line(tmp_path):
    done = check(tmp_path, "--seconds", "0")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("hwbench: --seconds 0.0 is out of range")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("statuses", "line"),
    [
        (("good", "unreadable"), "fit: 0 bad, 0 warnings, 1 good, 1 unreadable."),
        (("good", "warning"), "usable: 0 bad, 1 warning, 1 good, 0 unreadable."),
        (("warning", "warning", "bad"), "unfit: 1 bad, 2 warnings, 0 good, 0 unreadable."),
    ],
)
def test_a_table_and_the_verdict(monkeypatch, statuses, line):
    findings = [Finding(f"check{i}", status, "busiest: [/b]x", "wait") for i, status in enumerate(statuses)]
    monkeypatch.setattr("hwbench.device.health.check_device", lambda seconds, tick: findings)
    shown = CliRunner().invoke(app, ["check"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.strip().splitlines()[-1] == line
    assert shown.stdout.count("[/b]x") == len(statuses), "a process may be called like markup"
