"""CI does not take a skip for an answer where something was not set up; people are only told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest, unittest

def test_allowed():
    pytest.skip("long: make campaign runs it")

def test_missing():
    {missing}

def test_another():
    {missing}
"""
HAS = "assert True"


def run(folder: Path, missing: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(TESTS.format(missing=missing))
    environment = {**os.environ, "CI": "", "PYTHONPATH": str(ROOT), **env}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *words, "."]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


TWO = ("--numprocesses", "2", "--dist", "loadfile")
"""As `make test` runs them."""


@pytest.mark.parametrize("words", [(), TWO])
@pytest.mark.parametrize("missing", ["pytest.skip('no sshd')", "raise unittest.SkipTest('no sshd')"])
def test_ci_fails_for_what_was_not_set_up_and_says_what(tmp_path, missing, words):
    done = run(tmp_path, missing, *words, CI="true")
    assert done.returncode == 1, done.stdout
    assert "skipped for what CI must set up (tests/skips.py)" in done.stdout
    assert "[2] Skipped: no sshd" in done.stdout or "[2] no sshd" in done.stdout
    assert run(tmp_path, missing, *words).returncode == 0


def test_ci_takes_the_reasons_that_are_listed(tmp_path):
    done = run(tmp_path, HAS, CI="true")
    assert (done.returncode, "must set up" in done.stdout) == (0, False), done.stdout


@pytest.mark.parametrize(
    "reason",
    [
        "needs ncnn: pip install ncnn pnnx",
        "ncnn-vulkan does not run here: there is no Vulkan device here",
        "openvino does not run here: openvino is not installed",
        "tensorrt does not run here: TensorRT is not installed; pip install tensorrt (or tensorrt_rtx, for RTX GPUs)",
        "could not import 'torch': No module named 'torch'",
        "Setting sshd up needs apt-get, not found here. Debian package: apt",
    ],
)
def test_nothing_that_can_be_set_up_is_listed(reason):
    assert not skips.allowed(reason)
    assert not skips.allowed(f"Skipped: {reason}")
