"""What pages show is what happens: the commands of README.md and docs/*.md are run, and their output compared.

How to write a page:

    ```console                      A terminal. Lines after "$ " are commands for bash; what follows is their output, stdout
    $ hwbench list spaces           and stderr together. A command that ends in a backslash goes on in the next line.
    autoformer-tiny
    ...                             A line of three dots stands for any number of lines, or none.
    ```

    ```console no-run: REASON       Commands nobody can run here. Their verbs and options must exist, and test_pages.py
    ```                             counts them (NOT_RUN).

    ```console campaign             Minutes, not seconds: run by `make campaign` only, after which nothing may depend on it.
    ```

    `mine.py`:                      A line that ends so, and any block after it: a file, written where it stands in the page.

    ```python
    ```

    $ hwbench verify lost  # exit code 2      A command that is meant to fail says with which code. All others end with 0.

The commands of a page are run in order, in one new folder, with `hwbench`, `python` and `pytest` of this repository and a
terminal of 80 columns. HWBENCH_TABLES is not set. `hwbench` measures as always, but as shortly as it can (brief.py): a page
that takes hours for its reader takes seconds here. A page that begins elsewhere than in an empty folder, or has a board in
reach, says so in stages.py.

Outputs are compared word by word, with everything masked that a machine, a clock or a draw decides: numbers, names of
machines, dates, hashes, paths, verdicts, whether a budget was kept, which architecture won (MASKS has the list). Where lines
and columns break does not count, nor do lines that tell how far a command is (PROGRESS): they come now and then.

Where a change is meant, this writes outputs anew into the page, measured with the usual care (look at the difference):

    HWBENCH_RECORD=1 python -m pytest tests/docs/test_pages.py -k README

With HWBENCH_BRIEF=1 as well, as shortly as tests do: for tutorials, where words changed.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

import hwbench

ROOT = Path(hwbench.__file__).parents[1]
PAGES = sorted(path for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")) if "```console" in path.read_text())
COLUMNS = 80
ANYTHING = "..."
HOME = "~"
"""Below it lie the folder of a page (work) and hwbench itself (hwbench) in recorded outputs."""

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
NO_RUN = re.compile(r"console no-run: (?P<reason>.+)")
CAMPAIGN = "console campaign"
FILE = re.compile(r"`(?P<name>[\w./-]+\.\w+)`:\n\n\Z")
FAILS = re.compile(r"\s+# exit code (?P<code>\d+)$")
PROGRESS = re.compile(r"^\[\d+:\d\d\] .*\n?", re.MULTILINE)
VERDICTS = "stable|noisy|shifted|throttled"
MASKS = (
    (r"\{'.*\}", "{}"),  # an architecture
    (r"\bms (kept|BROKEN)( \(.*\))?; finalists", "ms KEPT; finalists"),
    (rf"\b({VERDICTS}): .*", "VERDICT"),  # ... with its reason
    (rf"\b({VERDICTS})\b", "VERDICT"),
    (r"\bbudget (kept|BROKEN)", "budget KEPT"),
    (r": (same|faster|slower|too close to call)\. .*", ": ANSWER"),  # of two measurements, with its reason
    (r"(?<=│)\s*(yes|no)\s*(?=│)", " YES "),
    (r"(?<=│)\s*-\s*(?=│)", " # "),  # no number
    (r"(Unknown device .*Available:) .*", r"\1 THEM"),
    (r"(cannot be reached:) .*?(?=; try:)", r"\1 WHY"),
    (r"Interrupted(\. Kept: .*?|; of this command nothing is kept)\. To (go on|start again), run", "INTERRUPTED, run"),
    (r"\b(today|\d+ days? ago|some time ago)\b", "AGE"),
    (r"\d{4}-\d\d-\d\d(T[\d:.+]+Z?)?", "#"),
    (r"\([^\n]*?, \d+ cores", "(CPU, # cores"),
    (r"\b[a-z][a-z0-9-]*-\d+c\b", "MACHINE"),  # as devices.local_name() makes them
    (r"(?<![\w.~/])~?/[\w.-]+(/[\w.-]+)*", "PATH"),
    (r"\b[0-9a-f]{8}\b", "#"),
    (r"(?<![A-Za-z_\d])[-+]?\d+([.,]\d+)*(e[-+]?\d+)?", "#"),
    (r"[─━│┃┌┐└┘├┤┬┴┼╇╈╪┏┓┗┛┡┩┳┻]+", " "),
)
"""Pattern -> what stands for it. fp32, int8 and other numbers within names are compared."""


@dataclass(frozen=True)
class Command:
    """A command and what the page says it prints."""

    line: str
    shown: str
    code: int = 0


@dataclass(frozen=True)
class File:
    """A file the page shows."""

    name: str
    content: str


@dataclass(frozen=True)
class Page:
    """A page, as what there is to do."""

    path: Path

    @property
    def name(self) -> str:
        """Its path in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    def steps(self, campaign: bool = False) -> Iterator[Command | File]:
        """What is written and run, in order."""
        text = self.path.read_text(encoding="utf-8")
        kinds = ("console", CAMPAIGN) if campaign else ("console",)
        for block in FENCE.finditer(text):
            if named := FILE.search(text[: block.start()]):
                yield File(named["name"], block["text"])
            elif block["info"].strip() in kinds:
                yield from commands(block["text"])

    def not_run(self) -> list[tuple[str, Command]]:
        """(reason, command) of what cannot be run here."""
        blocks = FENCE.finditer(self.path.read_text(encoding="utf-8"))
        marked = [(NO_RUN.fullmatch(block["info"].strip()), block["text"]) for block in blocks]
        return [(found["reason"], each) for found, text in marked if found for each in commands(text)]


def commands(block: str) -> Iterator[Command]:
    """Of a console block."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, shown = re.sub(r"\\\n", "\\\0", part).partition("\n")
        fails = FAILS.search(line)
        yield Command(line.replace("\0", "\n"), shown.replace("\0", "\n"), int(fails["code"]) if fails else 0)


def words(text: str) -> list[str]:
    """What is compared."""
    text = PROGRESS.sub("", text)
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return text.split()


def segments(shown: str) -> list[list[str]]:
    """Lines between lines of three dots."""
    found: list[list[str]] = [[]]
    for line in shown.splitlines():
        if line.strip() == ANYTHING:
            found.append([])
        else:
            found[-1].append(line)
    return found


def agree(shown: str, printed: str) -> bool:
    """Whether an output is what a page shows."""
    first, *rest = ["\n".join(lines) for lines in segments(shown)]
    there, wanted = words(printed), words(first)
    if not rest:
        return there == wanted
    if there[: len(wanted)] != wanted:
        return False
    at = len(wanted)
    for part in rest[:-1]:
        wanted = words(part)
        at = next((i + len(wanted) for i in range(at, len(there) + 1) if there[i : i + len(wanted)] == wanted), -1)
        if at < 0:
            return False
    last = words(rest[-1])
    return len(there) - at >= len(last) and there[len(there) - len(last) :] == last


def difference(shown: str, printed: str) -> str:
    """For people: both as they are, and the first lines that differ once masked."""
    both = [[" ".join(words(line)) for line in text.splitlines()] for text in (shown, printed)]
    diff = "\n".join(difflib.unified_diff(*both, "shown", "printed", lineterm="", n=1))
    return f"{diff}\nprinted:\n{printed}"


def recorded(shown: str, printed: str) -> str:
    """The output as the page will show it: whole, or what stood between dots, as it is now.

    Lines between dots that are not printed any more are followed by as many of those that are most like them.
    """
    parts, there = segments(shown), PROGRESS.sub("", printed).splitlines()
    if len(parts) == 1:
        return "".join(f"{line}\n" for line in there)
    found, at = [], 0
    for number, part in enumerate(parts):
        last = len(there) - len(part)
        if number in (0, len(parts) - 1):
            at = max(at, last) if number else 0
        else:
            at = max(range(at, max(at, last) + 1), key=lambda start: _likeness(part, there[start : start + len(part)]))
        found.append("".join(f"{line}\n" for line in there[at : at + len(part)]))
        at += len(part)
    return f"{ANYTHING}\n".join(found)


def _likeness(shown: Sequence[str], printed: Sequence[str]) -> float:
    """How much two passages have in common, 0 to 1; the first of equals wins."""
    return difflib.SequenceMatcher(None, words("\n".join(shown)), words("\n".join(printed)), autojunk=False).ratio()


@dataclass(frozen=True)
class Shell:
    """Where the commands of a page run."""

    folder: Path
    programs: Path
    brief: bool = True
    campaign: bool = False
    path: str = ""
    """Folders with programs of the page's own."""

    def __post_init__(self) -> None:
        self.programs.mkdir(parents=True, exist_ok=True)
        main = "-m tests.docs.brief" if self.brief else "-m hwbench"
        for name, module in {"hwbench": main, "python": "", "pytest": "-m pytest"}.items():
            program = self.programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            program.chmod(0o755)

    def run(self, line: str) -> tuple[int, str]:
        """(exit code, what a terminal would show)."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HWBENCH_", "MAKE"))}
        env |= {"COLUMNS": str(COLUMNS), "TERM": "dumb", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
        beside = str(Path(sys.executable).parent)  # ruff and the like
        env |= {"PATH": os.pathsep.join(filter(None, (str(self.programs), self.path, beside, os.environ["PATH"])))}
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600 if self.brief else 7200,
            check=False,
        )
        shown = done.stdout.replace(str(self.folder), f"{HOME}/work").replace(str(ROOT), f"{HOME}/hwbench")
        return done.returncode, "".join(f"{line.rstrip()}\n" for line in shown.splitlines() if line.strip())

    def follow(self, page: Page) -> Iterator[tuple[Command, int, str]]:
        """Writes the files of a page and runs its commands; gives each with its exit code and its output."""
        for step in page.steps(self.campaign):
            if isinstance(step, File):
                path = self.folder / step.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.content, encoding="utf-8")
            else:
                yield step, *self.run(step.line)


def run_page(page: Page, shell: Shell) -> list[str]:
    """Writes its files, runs its commands; returns what does not agree with the page."""
    wrong = []
    for command, code, printed in shell.follow(page):
        if code != command.code or "Traceback" in printed:
            wrong.append(f"$ {command.line}\nends with {code}, not {command.code}:\n{printed}")
        elif not agree(command.shown, printed):
            wrong.append(f"$ {command.line}\n{difference(command.shown, printed)}")
    return wrong


def record_page(page: Page, shell: Shell) -> None:
    """Writes into the page what its commands print now."""
    text, at = page.path.read_text(encoding="utf-8"), 0
    for command, code, printed in shell.follow(page):
        if code != command.code:
            raise ValueError(f"$ {command.line}\nends with {code}, not {command.code}:\n{printed}")
        before = f"$ {command.line}\n{command.shown}"
        after = f"$ {command.line}\n{recorded(command.shown, printed)}"
        at = text.index(before, at)
        text = text[:at] + after + text[at + len(before) :]
        at += len(after)
    page.path.write_text(text, encoding="utf-8")


def understood(line: str, app: typer.Typer) -> str | None:
    """Why a `hwbench` command would not be understood: an unknown verb or option; None where it would."""
    command = typer.main.get_command(app)
    asked: Sequence[str] = shlex.split(line, comments=True)[1:]
    while hasattr(command, "commands"):
        if not asked or asked[0] not in command.commands:
            return f"there is no verb {' '.join(asked[:1])!r}"
        command, asked = command.commands[asked[0]], asked[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in asked if word.startswith("--") and word.partition("=")[0] not in known]
    return f"there is no option {unknown[0]}" if unknown else None
