"""The four tutorials lead through everything a newcomer meets, and no hint in them is a dead end.

That their commands run and print what is shown is checked with all other pages, by test_pages.py.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.console_blocks import ROOT, Command, Page

TUTORIALS = [Page(path) for path in sorted((ROOT / "docs").glob("tutorial-*.md"))]
COMMANDS = {page.name: [step for step in page.steps() if isinstance(step, Command)] for page in TUTORIALS}
LINES = [command.line for page in COMMANDS.values() for command in page]
HINT = re.compile(r"\b[Rr]un: (hwbench .*?)(?:, or .*|\.)?$|; try: (ssh .*?)\.?$", re.MULTILINE)
"""What a message says to run."""
COVERED = {
    "make test sets a bare machine up": r"make --dry-run test",
    "a version": r"hwbench --version",
    "python -m": r"python -m hwbench",
    "list names the kinds": r"hwbench list$",
    "--workspace": r"--workspace try",
    "export without --space": r"hwbench export --arch \S+ --out",
    "predictors by their listed names": r"--predictor calibrated-sum",
    "peers by their listed names": r"--strategy pymoo-nsga2",
    "one meaning of --batch": r"measure .*--batch 8",
    "no option is ignored": r"--gamma -0.1 --out soft  # exit code 2",
    "results as files": r"measure .*--out measured$",
    "predictions as files": r"predict .*--out predicted.csv",
    "a history of one's own models": r"--against LAST --fail-if-slower",
    "raw readings where asked for": r"--raw --out",
    "int8 in part": r"--dtype int8 --strict",
    "Ctrl-C says what was kept": r"--signal INT",
    "is the machine fit": r"device check",
    "all rows of a table": r"lut show",
    "reports": r"hwbench report",
    "Parquet that explains itself": r"python columns.py",
    "devices by what they are like": r"--like pi4",
    "not tried until it was": r"device setup board",
    "a board over ssh": r"--device board",
    "own accuracy in workers": r"--accuracy mine.py:evaluate .*--workers 2",
    "own accuracy as a table": r"--accuracy known.csv",
    "own space": r"--space ./narrow.py:Narrow",
    "own loop": r"python loop.py",
    "own supernet": r"python supernet.py",
    "a budget for any device": r"--budget 0.7x",
    "an operator": r"check-part softsign",
    "a proxy": r"check-part macs",
    "a runtime": r"check-part plain-onnx",
    "an aggregator": r"check-part ratio",
    "a benchmark table": r"check-part ours",
    "one part alone": r"pytest -q tests/network/op -k softsign",
}
"""What newcomers asked for -> the command that shows it."""


def plain(command: Command) -> str:
    """As it is typed."""
    return command.line.partition("  # exit code")[0]


def hints(command: Command) -> list[str]:
    """What the output of a command that failed says to run."""
    return [one or other for one, other in HINT.findall(command.shown)] if command.code else []


def test_there_are_four():
    assert [page.path.stem for page in TUTORIALS] == [
        "tutorial-budget",
        "tutorial-contribution",
        "tutorial-device",
        "tutorial-research",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_tutorial_is_a_tour_not_a_glance(name):
    assert len({plain(command) for command in COMMANDS[name]}) >= 25


@pytest.mark.parametrize("what", COVERED)
def test_what_newcomers_asked_for_is_shown(what):
    assert any(re.search(COVERED[what], line) for line in LINES), what


@pytest.mark.parametrize("name", COMMANDS)
def test_the_hint_of_an_error_is_the_next_command_and_leads_on(name):
    """Pasted as it stands. Either it is the command mended (of the same verb), or what had failed works after it."""
    commands = COMMANDS[name]
    for at, command in enumerate(commands):
        for hint in hints(command):
            follows, later = commands[at + 1], commands[at + 1 :]
            assert plain(follows) == hint, f"after {command.line}"
            if hint.startswith("hwbench "):  # ssh to a board that is switched off fails
                mended = " ".join(hint.split()[:2]) in command.line
                assert follows.code == 0
                assert mended or any(plain(other) == plain(command) and not other.code for other in later), command.line


def test_some_errors_are_shown_on_purpose_with_hints_to_paste():
    assert all(sum(bool(command.code) for command in commands) >= 2 for commands in COMMANDS.values())
    assert sum(len(hints(command)) for commands in COMMANDS.values() for command in commands) >= 6
