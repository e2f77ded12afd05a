"""What is published: the wheel is whole, works outside the checkout, and the lower bounds are true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hwbench
from studies import lowest, outside

ROOT = Path(hwbench.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]


def test_a_wheel_carries_what_a_workspace_is_searched_for():
    assert WHEEL["packages"] == ["hwbench"]
    assert WHEEL["force-include"] == {name: f"hwbench/_data/{name}" for name in outside.SHIPPED}


def test_every_dependency_has_a_lower_bound_and_none_other():
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    groups += [[each for each in group if isinstance(each, str)] for group in PROJECT["dependency-groups"].values()]
    for each in (each for group in groups for each in group if not each.startswith("hwbench-nas[")):
        assert re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\d.]+", each), each


def test_the_lowest_versions_are_tried_by_tests_that_are_there():
    assert [path for path in lowest.FITTING if not (ROOT / path).exists()] == []
    tools = {each.split(">")[0] for each in lowest.required()} - {
        each.split(">")[0] for each in PROJECT["project"]["dependencies"]
    }
    assert tools == {*lowest.TOOLS}


@pytest.mark.campaign
def test_the_wheel_works_outside_the_checkout(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "studies.outside", "--folder", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (code,) = re.findall(r"^code: (.*)$", done.stdout, re.MULTILINE)
    assert Path(code).is_relative_to(tmp_path)
    assert "hwbench works here." in done.stdout
    (report,) = re.findall(r"^report: (.*\.html)$", done.stdout, re.MULTILINE)
    assert (tmp_path / "away" / report).is_file()


@pytest.mark.campaign
def test_the_lowest_versions_work(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "studies.lowest", "--folder", str(tmp_path / "low")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
