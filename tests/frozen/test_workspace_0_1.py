"""A workspace that version 0.1 wrote opens for ever: its table, journal, networks, predictor, searches and report.

tests/assets/workspace-0.1 was written once, by make_workspace.py beside it, and is never written again; what version 0.1
answered about it is in workspace-0.1-golden. Later versions may say more, never less and never something else.
Nothing is measured here, and the device is named: these tests do not depend on the machine they run on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hwbench
from tests.frozen.record import ASSETS, recorded

GOLDEN = "workspace-0.1-golden"
ANSWERS: dict[str, Any] = recorded(f"{GOLDEN}/answers.json")
VERSIONS = (".schema", ".hwbench_version")
"""What a later version may call itself."""
LIMIT = 1_500_000
"""Bytes of the workspace: every clone carries it."""


@pytest.fixture
def workspace(tmp_path) -> Path:
    """A copy to work in."""
    return Path(shutil.copytree(ASSETS / "workspace-0.1", tmp_path / "workspace"))


def run(root: Path, *words: str) -> str:
    """Runs the command inside a workspace; returns its last line."""
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    command = [sys.executable, "-W", "error", "-m", "hwbench.cli.main", *words]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def assert_holds(now: Any, before: Any, where: str, rel: float = 1e-9) -> None:
    """All that was said before is said now, numbers up to rounding; more may be said."""
    if isinstance(before, dict):
        assert before.keys() <= now.keys(), where
        for key in before:
            assert_holds(now[key], before[key], f"{where}.{key}", rel)
    elif isinstance(before, list):
        assert len(now) == len(before), where
        for i, (a, b) in enumerate(zip(now, before, strict=True)):
            assert_holds(a, b, f"{where}[{i}]", rel)
    elif isinstance(before, float):
        assert now == pytest.approx(before, rel=rel, abs=rel / 1000), where
    elif not where.endswith(VERSIONS):
        assert now == before, where


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - {"fit", "search"}))
def test_it_answers_as_it_did(name, workspace):
    """Table, journal, predictor and the verified search, through the verbs that read them."""
    assert_holds(json.loads(run(workspace, *ANSWERS[name]["words"])), ANSWERS[name]["answer"], name)


def test_a_fit_from_its_stored_networks_has_the_errors_it_had(workspace):
    """A fit solves linear systems, and BLAS differs between CPUs in the last bits: errors are small differences of those."""
    card = json.loads(run(workspace, *ANSWERS["fit"]["words"]))["card"]
    before = ANSWERS["fit"]["answer"]["card"]
    for what in ("errors", "coverage", "noise_ceiling"):
        assert_holds(card[what], before[what], what, rel=1e-6)
    assert (card["fit_networks"], card["holdout_networks"]) == (before["fit_networks"], before["holdout_networks"])


def test_a_search_killed_half_way_ends_like_one_never_killed(workspace):
    words = ANSWERS["search"]["words"]
    folder = workspace / words[words.index("--out") + 1]
    before = (folder / "trials.jsonl").read_bytes()
    whole = (ASSETS / GOLDEN / "trials.jsonl").read_bytes()
    assert 0 < before.count(b"\n") < whole.count(b"\n")
    assert not (folder / "search.json").exists()
    found = json.loads(run(workspace, *words))
    assert (folder / "trials.jsonl").read_bytes() == whole
    assert_holds(found, ANSWERS["search"]["answer"], "search")


def test_the_report_is_rendered_again(workspace):
    """Both files and all pictures anew, with the numbers of the main table; the words may change."""
    folder = workspace / "searches" / "verified"
    figures = {path.name for path in (folder / "figures").iterdir()}
    for path in [*(folder / "figures").iterdir(), folder / "report.md", folder / "report.html"]:
        path.unlink()
    run(workspace, "report", "searches/verified", "--workspace", ".")
    assert {path.name for path in (folder / "figures").iterdir()} >= figures
    text = (folder / "report.md").read_text()
    for row in ANSWERS["report"]["answer"]["table"]:
        assert f"{row['predicted_ms']:.1f}" in text
        assert f"{row['measured_min_ms']:.1f}" in text
    assert "<html" in (folder / "report.html").read_text()


def test_it_is_small_and_tells_nothing_of_where_it_was_made():
    files = [path for path in (ASSETS / "workspace-0.1").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LIMIT
    for path in files:
        assert not re.search(rb"/(tmp|home|root|work|Users)/", path.read_bytes()), path
