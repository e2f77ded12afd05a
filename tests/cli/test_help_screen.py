"""`--help` of every verb at 80 columns: nothing beyond them, no word lost, and nothing heavy imported on the way."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from hwbench.cli.main import build
from hwbench.core.errors import UsageError

APP = build()
COLOURS, FRAME = re.compile(r"\x1b\[[0-9;]*m"), re.compile("[│╭╮╰╯─]")
HEAVY = ("torch", "onnx", "onnxruntime", "pandas", "scipy", "pyarrow", "matplotlib", "lightgbm", "numpy")
LOADED = """
import sys
from typer.testing import CliRunner
from hwbench.cli.main import build
app = build()
for words in sys.argv[2:]:
    done = CliRunner().invoke(app, [*words.split(), "--help"])
    assert done.exit_code == 0, done.output
    found = [name for name in sys.argv[1].split() if name in sys.modules]
    assert not found, f"hwbench {words} --help imports {found}"
"""


def commands(command, *path):
    found = {" ".join(path): command}
    for name, below in getattr(command, "commands", {}).items():
        found |= commands(below, *path, name)
    return found


COMMANDS = commands(typer.main.get_command(APP))


@pytest.mark.parametrize("words", COMMANDS)
def test_help_fits_80_columns_and_loses_no_word(words):
    env = {"COLUMNS": "80", "LINES": "50", "TERM": "xterm"}
    done = CliRunner(env=env).invoke(APP, [*words.split(), "--help"], prog_name="hwbench", catch_exceptions=False)
    shown = COLOURS.sub("", done.stdout)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert "…" not in shown
    seen = set(FRAME.sub(" ", shown).split())
    command = COMMANDS[words]
    told = [command.help or "", *(parameter.help or "" for parameter in command.params)]
    names = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    assert not {word for text in told for word in text.split()} - seen
    assert not {name for name in names if not any(name in word for word in seen)}


def test_help_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", LOADED, " ".join(HEAVY), *COMMANDS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def source(command) -> str:
    return inspect.getsource(sys.modules[command.callback.__module__])


@pytest.mark.parametrize("words", [words for words, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_verbs_that_print_tables_show_all_columns_on_demand(words):
    has = any(parameter.name == "wide" for parameter in COMMANDS[words].params)
    prints_none = ("profile", "sample", "export", "device setup", "table import", "site", "completion", "lut check")
    assert has == (words not in prints_none)
    assert has <= ("console.table(" in source(COMMANDS[words]))


@pytest.mark.parametrize("given", [("--json", "--wide"), ("--wide", "--json")])
def test_a_document_has_all_columns_anyway(given):
    with pytest.raises(UsageError, match="list reads --wide only without --json"):
        CliRunner().invoke(APP, ["list", "spaces", *given], catch_exceptions=False)
