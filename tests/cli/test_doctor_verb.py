"""hwbench doctor: a table, one document, and its exit code."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from hwbench.cli.main import build
from hwbench.device.doctor import ESSENTIAL, Diagnosis, Part


def shown(monkeypatch, *arguments, parts):
    made = Diagnosis("1", "there", "3", "mine", "CPU", 2, "none", "cache", {"unpacked/gcc": 3_000_000}, parts)
    monkeypatch.setattr("hwbench.device.doctor.doctor", lambda workspace: made)
    return CliRunner().invoke(build(), ["doctor", *arguments])


LACKING = [Part("packages", "missing", "lacks onnx", ESSENTIAL, "pip install onnx"), Part("ssh", "here", "/bin/ssh", "boards")]


def test_what_hwbench_cannot_do_without_gives_the_exit_code(monkeypatch):
    done = shown(monkeypatch, parts=LACKING)
    assert done.exit_code == 1
    assert "  packages: pip install onnx\n" in done.stdout
    assert "unpacked/gcc: 3 MB" in done.stdout
    assert done.stdout.splitlines()[-1] == "hwbench does not work here: see above."
    assert shown(monkeypatch, parts=LACKING[1:]).exit_code == 0


def test_one_document(monkeypatch):
    done = shown(monkeypatch, "--json", parts=LACKING)
    document = json.loads(done.stdout)
    assert (done.exit_code, document["works"], document["parts"][0]["get"]) == (1, False, "pip install onnx")
