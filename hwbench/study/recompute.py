"""Every published number computed again from stored data: what differs, what no stored data stands behind, and why.

    hwbench recompute reports/

Documents are all Markdown files below the folder, and README.md beside it. Their numbers (published_numbers.py) are checked
in one of four ways:

1. The document is written again from stored data, and the number's line stands there word for word: leaderboards from the
   runs of a validation, comparisons of runtimes from their rows, winners elsewhere from their latencies, reports of searches
   from the search; studies render their own, by `python -m studies --render` in the current folder.
2. It stands in a row of a table, of three numbers at least, that stands word for word in a document so written.
3. figures.toml of the folder says which stored value it is (stated_figures.py).
4. figures.toml says that it was chosen, or that its raw data is not stored, and why.

Everything else is an error: a number nothing stands behind looks like one that was made up.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hwbench.accuracy.benchmark.base import PERCENT
from hwbench.core.errors import DataError, HwbenchError, UsageError
from hwbench.core.files import read_json, scratch_folder
from hwbench.core.progress import Tick, no_tick
from hwbench.space.architectures import RESULT_NAME
from hwbench.study import compare_runtimes, leaderboard, published_numbers, specialise, validate, verification
from hwbench.study.published_numbers import Block, Number, lines_of
from hwbench.study.report import markdown_of
from hwbench.study.stated_figures import EVERYWHERE, FILE, Piece, Sources, Statement, Statements

RENDERED, STATED, GIVEN, LOST = "written again", "stated", "given", "lost"


@dataclass
class Verdict:
    """What is known of one document's numbers."""

    document: str
    numbers: int = 0
    found: Counter[str] = field(default_factory=Counter)
    """How a number was accounted for -> how many."""
    how: dict[tuple[int, int], str] = field(default_factory=dict)
    """(block, where in its text) -> how that number was accounted for."""
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Numbers without stored data, each with its reason."""
    wrong: list[dict[str, Any]] = field(default_factory=list)
    """What stands there, and what should."""


def recompute(reports: str | Path = "reports", workspace: str | Path = ".", tick: Tick = no_tick) -> dict[str, Any]:
    """Checks every number of a folder of reports and of README.md beside it.

    Args:
        reports: A folder with one folder per study.
        workspace: Where predictors and tables are that reports of searches were made with.
        tick: Progress over documents.

    Returns:
        `documents`: of each its `numbers` and how they were accounted for; `numbers`, `recomputed`, `given` in all; `lost`:
        those without stored data, with reasons; `wrong`: those that differ or that nothing stands behind; `notes`: what could
        not be written again.

    Raises:
        UsageError: there is no such folder, or nothing in it.
        DataError: figures.toml is not as it must be.
    """
    folder = Path(reports)
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}; give the one that holds the reports.")
    names = documents(folder)
    if not names:
        raise UsageError(f"{folder} holds no report: no Markdown file is below it.")
    statements = Statements.read(folder / FILE)
    texts, notes = written_again(folder, Path(workspace))
    sources = Sources(folder, texts)
    verdicts = []
    for at, name in enumerate(names):
        verdicts.append(check(name, (folder / name).read_text(encoding="utf-8"), statements, sources))
        tick(at + 1, len(names))
    told = {statement.document for statement in statements.all}
    nowhere = [
        {"document": FILE, "line": None, "text": name, "why": "no such document"}
        for name in sorted(told - {*names, EVERYWHERE})
    ]
    return {
        "documents": [{"document": each.document, "numbers": each.numbers, **each.found} for each in verdicts],
        "numbers": sum(each.numbers for each in verdicts),
        "recomputed": sum(each.found[RENDERED] + each.found[STATED] for each in verdicts),
        "given": sum(each.found[GIVEN] for each in verdicts),
        "lost": [entry for each in verdicts for entry in each.lost],
        "wrong": nowhere + [entry for each in verdicts for entry in each.wrong],
        "notes": notes,
    }


def documents(folder: Path) -> list[str]:
    """Markdown files below a folder of reports, and README.md beside it, by their paths from the folder."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    beside = (folder.resolve().parent / "README.md").is_file() and folder.resolve().name == "reports"
    return [*(["../README.md"] if found and beside else []), *found]


# What is written again


def written_again(folder: Path, workspace: Path) -> tuple[dict[str, str], list[str]]:
    """(document -> its text made of stored data, what could not be made and why)."""
    texts, notes = _of_studies(folder)
    for path in sorted(folder.rglob("*.json*")):
        name = (path.parent.relative_to(folder) / "x").as_posix().removesuffix("x")
        try:
            if path.name == "runs.jsonl" and (path.parent / "summary.json").exists():
                texts[f"{name}report.md"] = _leaderboard(path.parent)
            elif path.name == "compare.json":
                texts[f"{name}compare.md"] = compare_runtimes.told_again(read_json(path, "comparison of runtimes"))
            elif path.name == "specialise.json":
                texts[f"{name}specialise.md"] = specialise.told_again(read_json(path, "specialisation"))
            elif path.name == RESULT_NAME and all((path.parent / each).exists() for each in ("report.md", "trials.parquet")):
                texts[f"{name}report.md"] = _report(path.parent, workspace)
        except HwbenchError as error:
            notes.append(f"{path.relative_to(folder)}: {' '.join(str(error).split())}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            notes.append(f"{path.relative_to(folder)} is not as hwbench writes it: {type(error).__name__}: {error}")
    return texts, notes


def _of_studies(folder: Path) -> tuple[dict[str, str], list[str]]:
    """What the studies of the current folder render; they are no part of hwbench."""
    if not any(folder.rglob("study.json")):
        return {}, []
    if not Path("studies", "__main__.py").is_file():
        return {}, ["runs of studies are rendered by studies/, which is not in the current folder: run this in the checkout"]
    with scratch_folder() as scratch:
        command = [sys.executable, "-m", "studies", "--render", str(folder), "--out", str(scratch)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        texts = {
            path.relative_to(scratch).as_posix(): path.read_text(encoding="utf-8") for path in sorted(scratch.rglob("*.md"))
        }
    notes = [line for line in done.stderr.splitlines() if line.startswith("studies:")]
    if done.returncode and not notes:
        notes = [f"python -m studies --render failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"]
    return texts, notes


def _leaderboard(folder: Path) -> str:
    """report.md of a validation, from its single runs."""
    # what older summaries leave out was the same for all of them
    about = {"pool": None, "accuracy_unit": PERCENT, **read_json(folder / "summary.json", "validation")}
    results = validate.read_log(folder / "runs.jsonl")
    return leaderboard.report_of(leaderboard.document_of(results, about, about["failed"], folder))


def _report(folder: Path, workspace: Path) -> str:
    """report.md of a verified search, from everything that search and verification stored."""
    if not (folder / verification.SUMMARY).exists():
        raise DataError(f"{folder} has a report and no {verification.SUMMARY}, which it is made of.")
    return markdown_of(folder, workspace)


# Checking


def check(name: str, text: str, statements: Statements, sources: Sources) -> Verdict:
    """Accounts for every number of one document.

    Args:
        name: Its path from the folder of reports.
        text: It, as published.
        statements: figures.toml.
        sources: Stored files and what was written again.
    """
    blocks = published_numbers.read(text, statements.names)
    own = lines_of(sources.recomputed[name]) if name in sources.recomputed else {}
    verdict = Verdict(name, sum(len(block.numbers) for block in blocks))
    accounted = verdict.how
    mine = [statement for statement in statements.all if statement.document in (name, EVERYWHERE)]
    quoted = set() if any(EVERYWHERE in statement.texts for statement in mine) else sources.rows
    for at, block in enumerate(blocks):
        for number in block.numbers:
            line = next(told for place, _, told in block.lines if place == number.line)
            if line in own or line in quoted:
                accounted[at, number.at] = RENDERED
    for statement in mine:
        _state(statement, blocks, sources, verdict)
    for at, block in enumerate(blocks):
        unknown = [number for number in block.numbers if (at, number.at) not in accounted]
        for place in dict.fromkeys(number.line for number in unknown):
            verdict.wrong.append(_unaccounted(name, block, [each for each in unknown if each.line == place], own))
    verdict.found.update(accounted.values())
    return verdict


def _state(statement: Statement, blocks: list[Block], sources: Sources, verdict: Verdict) -> None:
    """Puts one entry of figures.toml to the document."""
    kind = {"figure": STATED, "given": GIVEN, "lost": LOST}[statement.kind]
    for text in statement.texts:
        if text == EVERYWHERE:
            for at, block in enumerate(blocks):
                _account(statement, kind, at, block.numbers, verdict)
            continue
        try:
            pieces = _squeezed(sources.pieces(text, statement.source) if kind == STATED else [Piece(text, True)])
        except DataError as error:
            verdict.wrong.append({"document": verdict.document, "line": None, "text": text, "why": str(error)})
            continue
        whole, there = "".join(piece.text for piece in pieces), False
        for at, begin in _places(blocks, whole):
            there = True
            _account(statement, kind, at, _within(blocks[at], begin, pieces), verdict)
        if not there and statement.document != EVERYWHERE:
            nearest = _nearest(whole, [block.text for block in blocks])
            why = "recomputed, it does not stand there" if kind == STATED else "it does not stand there any more"
            verdict.wrong.append(
                {"document": verdict.document, "line": _line_of(blocks, nearest), "text": whole, "why": why, "nearest": nearest}
            )


def _account(statement: Statement, kind: str, at: int, numbers: Iterable[Number], verdict: Verdict) -> None:
    """Notes what stands behind numbers of a block; what was said first holds."""
    for number in numbers:
        if (at, number.at) in verdict.how:
            continue
        verdict.how[at, number.at] = kind
        if kind == LOST:
            told = {"line": number.line, "number": number.text, "reason": statement.reason}
            verdict.lost.append({"document": verdict.document, **told})


def _squeezed(pieces: Iterable[Piece]) -> list[Piece]:
    """Literals as a block's text has them."""
    told = [Piece(piece.text if piece.computed else _plain(piece.text), piece.computed) for piece in pieces]
    if len(told) == 1:
        return [Piece(published_numbers.plain(told[0].text), told[0].computed)]
    first, *middle, last = told
    return [Piece(first.text.lstrip(), first.computed), *middle, Piece(last.text.rstrip(), last.computed)]


def _plain(text: str) -> str:
    """Plain text that keeps a space at its ends."""
    head, tail = " " * text[:1].isspace(), " " * text[-1:].isspace()
    return f"{head}{published_numbers.plain(text)}{tail}" if text.strip() else head


def _places(blocks: list[Block], whole: str) -> Iterator[tuple[int, int]]:
    """(block, where in it) for every time a text stands there."""
    for at, block in enumerate(blocks):
        begin = block.text.find(whole)
        while begin >= 0:
            yield at, begin
            begin = block.text.find(whole, begin + 1)


def _within(block: Block, begin: int, pieces: list[Piece]) -> Iterator[Number]:
    """Numbers of a block that lie in computed pieces of a text that begins there."""
    for piece in pieces:
        end = begin + len(piece.text)
        if piece.computed:
            yield from (each for each in block.numbers if begin <= each.at and each.at + len(each.text) <= end)
        begin = end


def _unaccounted(name: str, block: Block, numbers: list[Number], own: Mapping[str, None]) -> dict[str, Any]:
    """A line with numbers that nothing stands behind."""
    line = next(told for place, _, told in block.lines if place == numbers[0].line)
    why = f"nothing stands behind {', '.join(number.text for number in numbers)}"
    found = {"document": name, "line": numbers[0].line, "text": line, "why": why}
    return {**found, "nearest": _nearest(line, own)} if own else found


def _nearest(text: str, among: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(text, list(among), 1, 0.5)), None)


def _line_of(blocks: list[Block], text: str | None) -> int | None:
    return next((block.lines[0][0] for block in blocks if block.text == text), None)
