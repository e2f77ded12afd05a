"""What a bare machine lacks is gone for the command, and for nobody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from hwbench.core.files import write_json
from studies import bare_machine

LOOK = "for name in cc gcc ssh sshd; do command -v $name; done; ls ~/.cache/hwbench | wc -l; test -f pyproject.toml; exit 7"


def test_a_command_finds_no_compiler_and_an_empty_cache(tmp_path):
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may hide parts of a machine")
    before = shutil.which("cc")
    command = [sys.executable, bare_machine.__file__, "--folder", str(tmp_path), "sh", "-c", LOOK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    *hidden, clone, files, _, nothing, end = done.stdout.splitlines()
    assert [line.split(": ")[:2] for line in hidden] == [["hidden", what] for what in bare_machine.HIDDEN]
    assert clone.startswith("clone: ")
    assert (files.strip(), nothing) == ("0", "set up: nothing")
    assert ": exit code 7 after " in end
    assert shutil.which("cc") == before


PYTEST = """
import pytest


@pytest.mark.parametrize("n", range(3))
def test_skipped(n):
    pytest.skip("needs 2 GPUs: one is not enough")


@pytest.mark.skip(reason="long: make campaign runs it")
def test_long(): pass


def test_passes(): pass
"""


def test_tests_that_passed_were_skipped_or_failed_are_told_with_every_reason(tmp_path):
    (tmp_path / "test_some.py").write_text(PYTEST + "\ndef test_fails(): assert not 1\n")
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    code, printed = bare_machine.shown(command, tmp_path, os.environ)
    told = ["skipped: 3: needs 2 GPUs: one is not enough", "skipped: 1: long: make campaign runs it"]
    assert (code, bare_machine.tests(printed)) == (1, ["tests: 1 failed, 1 passed, 4 skipped", *told])
    assert bare_machine.tests(["no tests here", "= 3 things in 2s ="]) == []


def test_what_was_set_up_is_told(tmp_path):
    write_json(
        tmp_path / "unpacked" / "gcc" / "packages.json", {"made_for": {}, "packages": {"gcc:amd64": "1", "cpp:amd64": "2"}}
    )
    write_json(tmp_path / "emulated" / "x86-64" / "manifest.json", {"versions": {"qemu-user": "7"}})
    assert bare_machine.set_up(tmp_path) == ["emulated/x86-64: 1 Debian packages", "unpacked/gcc: 2 Debian packages"]
