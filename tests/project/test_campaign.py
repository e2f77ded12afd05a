"""What `make test` leaves out is what `make campaign` runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOOK = """
from tests import campaign


def pytest_collection_modifyitems(items):
    campaign.leave_out(items)


def pytest_configure(config):
    config.addinivalue_line("markers", "campaign: as here")
"""
TESTS = """
import pytest


def test_short(): pass

@pytest.mark.campaign
def test_long(): pass

@pytest.mark.campaign(always=True)
def test_either(): pass

@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize("n", range(9))
def test_many(n): pass

class TestOne:
    pytestmark = pytest.mark.campaign(keep=1)

    def test_member(self): pass

class TestOther(TestOne): pass
"""


def ran(folder: Path, campaign: bool, *words: str) -> list[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HWBENCH_", "PYTEST_"))}
    env |= {"PYTHONPATH": str(ROOT)} | ({"HWBENCH_CAMPAIGN": "1"} if campaign else {})
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(folder), *words, str(folder)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    return re.findall(r"::(\S+) PASSED", done.stdout)


def test_a_campaign_runs_what_is_left_out_elsewhere(tmp_path):
    (tmp_path / "conftest.py").write_text(HOOK)
    (tmp_path / "test_some.py").write_text(TESTS)
    usual = ran(tmp_path, campaign=False)
    assert len([name for name in usual if name.startswith("test_many")]) == 2
    assert len([name for name in usual if "test_member" in name]) == 1
    assert {name.partition("[")[0] for name in usual if "member" not in name} == {"test_short", "test_either", "test_many"}
    assert ran(tmp_path, campaign=False) == usual
    whole = ran(tmp_path, True, "-m", "campaign")
    assert len(whole) == 1 + 1 + 9 + 2
    assert set(whole) | set(usual) == {*whole, "test_short"}


def test_the_campaign_asks_for_all_that_is_marked():
    (recipe,) = re.findall(r"^\tHWBENCH_CAMPAIGN=1 .* pytest (.*) >>", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe == "-q -m campaign"
