"""The Tab key, in a real bash: it reads what `hwbench completion bash` prints and asks the program for what fits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import hwbench
from hwbench.cli import _complete as complete
from hwbench.cli.main import build
from hwbench.core.errors import UnknownName

TAB = """
set -eu
eval "$(hwbench completion bash)"
for line in "$@"; do
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    read -ra COMP_WORDS <<< "$line"
    case $line in *" ") COMP_WORDS+=("") ;; esac
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    function=$(complete -p hwbench | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
    $function hwbench "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" || true
    echo "${COMPREPLY[*]}"
done
"""
"""As bash does when the key is pressed: the words so far, the function that `complete` was told, and its answer."""


@pytest.fixture
def tab(tmp_path):
    """What bash offers behind each line."""
    program = tmp_path / "bin" / "hwbench"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom hwbench.cli.main import main\n\nmain()\n")  # as pip writes it
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}

    def press(*lines: str) -> list[list[str]]:
        bash = [shutil.which("bash") or "bash", "--norc", "-c", TAB, "bash", *lines]
        done = subprocess.run(bash, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return [line.split() for line in done.stdout.split("\n")[: len(lines)]]

    return press


def test_bash_offers_verbs_options_and_names(tab, tmp_path):
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "my-board.toml").touch()
    verbs, actions, option, space, device, strategy, proxy, nothing = tab(
        "hwbench se",
        "hwbench lut ",
        "hwbench search --evalu",
        "hwbench search --space autoformer-t",
        "hwbench profile --space bert --device my-",
        "hwbench search --space bert --strategy gp",
        "hwbench score --proxy dss-plus-plus-f",
        "hwbench search --space nothing-is-called-so",
    )
    assert verbs == ["search"]
    assert sorted(actions) == ["check", "compare", "diff", "history", "recover", "show"]
    assert option == ["--evaluations"]
    assert space == ["autoformer-tiny"]
    assert device == ["my-board"]
    assert strategy == ["gp-ehvi"]
    assert proxy == ["dss-plus-plus-fast"]
    assert nothing == []


def test_the_key_runs_no_code_of_the_user(tab, tmp_path):
    (tmp_path / "mine.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    assert tab("hwbench search --space ./mine.py:Mine --evalu") == [["--evaluations"]]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_every_shell(shell):
    done = CliRunner().invoke(build(), ["completion", shell])
    assert done.exit_code == 0, done.output
    assert f"_HWBENCH_COMPLETE=complete_{shell}" in done.stdout


def test_a_shell_nobody_knows_is_one_line():
    with pytest.raises(UnknownName, match=r"Unknown shell 'bush'\. Did you mean bash"):
        CliRunner().invoke(build(), ["completion", "bush"], catch_exceptions=False)


def parameters():
    def below(command, *words):
        for name, other in getattr(command, "commands", {}).items():
            yield from below(other, *words, name)
        if not hasattr(command, "commands"):
            yield from ((" ".join((*words, str(each.name))), str(each.name)) for each in command.params)

    return [*below(typer.main.get_command(build()))]


def test_every_name_that_is_completed_is_that_of_a_parameter():
    whole, alone = zip(*parameters(), strict=True)
    assert {*complete.VALUES} <= {*whole, *alone}


@pytest.mark.parametrize("name", complete.VALUES)
def test_what_is_offered_lists_something(name):
    class Context:
        params = {}

    assert len(complete.offered(complete.VALUES[name], Context, "")) >= 2


def test_help_shows_no_option_of_completion():
    assert "-completion" not in CliRunner().invoke(build(), ["--help"]).stdout
