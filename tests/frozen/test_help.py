"""The command line and the public names are those on record: nothing is renamed, lost or reworded by accident.

tests/assets/help/ holds the text of every `--help` at 120 columns, as the typer of constraints.txt sets it;
tests/assets/public_names.json holds `hwbench.__all__`. Where a change is meant: HWBENCH_RECORD=1 python -m pytest tests/frozen
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from tests.frozen.record import ASSETS, RECORDING, record, recorded

APP = build()
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Typer paints where it believes a terminal or a CI service is watching."""


def commands(command: Any, *path: str) -> dict[str, tuple[str, ...]]:
    """Name of the record -> words after `hwbench`, for a command and all below it."""
    found = {"-".join(("hwbench", *path)): path}
    for name, below in getattr(command, "commands", {}).items():
        found |= commands(below, *path, name)
    return found


COMMANDS = commands(typer.main.get_command(APP))


def shown(words: tuple[str, ...]) -> str:
    env = {"COLUMNS": "120", "LINES": "50", "TERM": "xterm"}  # a terminal that is "dumb" is taken to be 80 wide
    done = CliRunner(env=env).invoke(APP, [*words, "--help"], prog_name="hwbench", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines = COLOURS.sub("", done.stdout).strip().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_as_recorded(name):
    if RECORDING:
        record(f"help/{name}.txt", shown(COMMANDS[name]))
    assert shown(COMMANDS[name]) == recorded(f"help/{name}.txt")


def test_no_command_is_lost():
    known = {path.stem for path in (ASSETS / "help").glob("*.txt")}
    if RECORDING:
        for name in known - COMMANDS.keys():
            (ASSETS / "help" / f"{name}.txt").unlink()
        pytest.skip("recorded which commands there are")
    assert COMMANDS.keys() == known


def test_public_names_are_as_recorded():
    if RECORDING:
        record("public_names.json", hwbench.__all__)
    assert hwbench.__all__ == recorded("public_names.json")
    assert all(hasattr(hwbench, name) for name in hwbench.__all__)
