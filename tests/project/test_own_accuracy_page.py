"""docs/own-accuracy.md tells the truth: its files are written as shown, its commands run in order, and print what it shows.

Numbers may differ (the default strategy's depend on the CPU's arithmetic), and so may the winner; words may not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hwbench

ROOT = Path(hwbench.__file__).parents[1]
PAGE = (ROOT / "docs" / "own-accuracy.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
COLUMNS = 110
"""Width of the terminal the page was written in."""


def shown(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


def commands() -> list[tuple[str, str]]:
    """(command, what it printed)."""
    found = []
    for block in shown("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            found.append((line, printed))
    return found


def words(text: str) -> list[str]:
    """Line by line, with # for every number and without what the best network is or how wide a column is."""
    lines = [line.partition("{")[0] for line in text.splitlines()]
    bare = [re.sub(r"\d[\d.,]*( days?)?", "#", re.sub(r"[\s─━│┃┌┐└┘├┤┬┴┼╇╈╪┏┓┗┛┡┩┳┻]+", " ", line)).strip() for line in lines]
    return [line for line in bare if line]


def run(line: str, folder: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS), "TERM": "dumb"}
    python = f"{sys.executable} -m hwbench.cli.main"
    full = line.replace("hwbench ", f"{python} ", 1) if line.startswith("hwbench ") else line
    done = subprocess.run(["bash", "-c", full], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    return done.stdout + re.sub(r"^\[\d+:\d\d\] .*\n", "", done.stderr, flags=re.MULTILINE)  # without progress


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("page")
    (root / "mine.py").write_text(shown("python")[0])
    (root / "known.csv").write_text(shown("csv")[0])
    return root


def test_every_command_prints_what_the_page_shows(folder):
    for line, printed in commands():
        assert words(run(line, folder)) == words(printed), line


def test_the_script_runs(folder):
    (folder / "script.py").write_text(shown("python")[1])
    assert float(run(f"{sys.executable} script.py", folder)) > 70
