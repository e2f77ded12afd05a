"""One way to run a study: named stages whose results are stored as they come, and a report made of what is stored.

    python -m studies.NAME --out DIR        runs the stages that DIR lacks, then writes DIR/NAME.md

    DIR/study.json          which study, with which options, by which command, on which machine; written once
    DIR/stages/STAGE.json   one result each, whole or not there; killed, a study goes on after the last of them
    DIR/NAME.md             rendered from these files alone, so also later and elsewhere (--render)

A stage that raises an HwbenchError is told in one line and leaves the others; anything else is a bug and keeps its traceback.
Results of unlike machines, versions or options are never mixed: a folder holds one run of one study. Only a study that says so
(`anywhere`: trained accuracies are no times) is gone on with on other machines; every stage names its own.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from hwbench.cli._console import progress
from hwbench.core.errors import DataError, EnvironmentMismatch, HwbenchError, UsageError
from hwbench.core.files import atomic_write, read_json, write_json
from hwbench.core.progress import Tick
from studies import provenance
from studies.options import COMMON, Option

Results = Mapping[str, Any]
"""Stage -> what it returned, as JSON gave it back."""
ELSEWHERE = "Choose another --out."
TRIAL = "**A trial run at a tiny scale: its figures say nothing.**"


@dataclass(frozen=True)
class Study:
    """What `python -m studies.NAME` runs."""

    name: str
    doc: str
    """The module's docstring: its first line is the title."""
    takes: str
    """How long, told before anybody waits."""
    stages: Mapping[str, Callable[[Run], Any]] | Callable[[argparse.Namespace], Mapping[str, Callable[[Run], Any]]]
    """In the order they run, of one run where options choose; each returns what JSON can hold."""
    report: Callable[[Results, Mapping[str, Any]], str]
    """(results so far, fixed options) -> Markdown below the title."""
    options: Sequence[Option] = ()
    anywhere: bool = False
    """It may go on on another machine than it began on: no time taken by one stage is compared with that of another."""
    derived: Sequence[str] = ()
    """Stages that follow from what other stages and rows of the same folder hold: made again where it is rendered again."""

    @property
    def title(self) -> str:
        """One line."""
        return self.doc.strip().partition("\n")[0].rstrip(".")

    def main(self, words: Sequence[str] | None = None) -> int:
        """Runs it as the command line says; 0 where every stage asked for is done."""
        given = sys.argv[1:] if words is None else list(words)
        try:
            run = Run(self, self.parse(given), given)
            if not run.options.render:
                run.open()
            done = run.options.render or run.run()
            print(run.render())
        except HwbenchError as error:
            print(f"studies.{self.name}: {' '.join(str(error).split())}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            print(f"studies.{self.name}: stopped; what is done is stored, run the same command to go on.", file=sys.stderr)
            return 130
        return 0 if done else 1

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Options, the study's own among them."""
        parser = argparse.ArgumentParser(
            prog=f"python -m studies.{self.name}",
            description=f"{self.doc.strip()}\n\nTakes {self.takes}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for option in (*self.options, *COMMON):
            option.add_to(parser)
        known = self.stages if isinstance(self.stages, Mapping) else self.stages(parser.parse_args([]))
        docs = [getattr(stage, "func", stage).__doc__ or "" for stage in known.values()]  # of a partial: of its function
        lines = [doc.partition("\n")[0] if doc not in docs[:i] else "" for i, doc in enumerate(docs)]
        width = max(map(len, known))
        parser.epilog = "\n".join(["stages:", *(f"  {name:{width}}  {says}" for name, says in zip(known, lines, strict=True))])
        return parser.parse_args(words)


class Run:
    """One run of a study, as its stages see it: where to write, what was asked for, what is known."""

    def __init__(self, study: Study, options: argparse.Namespace, words: Sequence[str] = ()) -> None:
        self.study, self.options = study, options
        self.out: Path = options.out or Path(".studies") / study.name
        self.command = shlex.join(["python", "-m", f"studies.{study.name}", *words])
        self.stages = study.stages if isinstance(study.stages, Mapping) else study.stages(options)
        unknown = [name for name in (*(options.stage or ()), *(options.again or ())) if name not in self.stages]
        if unknown:
            raise UsageError(f"studies.{study.name} has no stage '{unknown[0]}'; stages: {', '.join(self.stages)}.")

    @property
    def tiny(self) -> bool:
        """Whether this is a trial run."""
        return bool(self.options.tiny)

    @property
    def workspace(self) -> Path:
        """Where hwbench keeps tables and predictors of this run."""
        return Path(self.options.workspace or self.out / "workspace")

    @property
    def tables(self) -> Path:
        """The public tables."""
        if self.options.tables is None:
            raise UsageError(f"studies.{self.study.name} reads public tables: give --tables DIR or set HWBENCH_TABLES.")
        return Path(self.options.tables)

    def progress(self, title: str) -> AbstractContextManager[Tick]:
        """A bar on stderr; gives the tick that library calls take."""
        return progress(title)

    def say(self, text: str) -> None:
        """One line on stderr."""
        print(text, file=sys.stderr, flush=True)

    def result(self, stage: str) -> Any:
        """What an earlier stage stored."""
        stored = self.stored(stage)
        if stored is None:
            raise UsageError(f"This needs what stage {stage} stores; run it first: --stage {shlex.quote(stage)}.")
        return stored["result"]

    # Storage

    @cached_property
    def about(self) -> dict[str, Any]:
        """study.json."""
        found: dict[str, Any] = read_json(self.out / "study.json", "run of a study")
        if found.get("study") != self.study.name:
            raise DataError(f"{self.out} holds the study {found.get('study')}, not {self.study.name}. {ELSEWHERE}")
        return found

    def open(self) -> None:
        """Begins study.json, or checks that this run may go on with what the folder holds."""
        fixed = {o.name: getattr(self.options, o.name.replace("-", "_")) for o in (*self.study.options, *COMMON) if o.fixed}
        if not (self.out / "study.json").exists():
            begun = {"study": self.study.name, "command": self.command, "options": fixed, "machine": provenance.machine()}
            write_json(
                self.out / "study.json", {**begun, "commit": provenance.commit(), "date": datetime.now(UTC).date().isoformat()}
            )
        _same(f"{self.out} holds a run with", self.about["options"], fixed, ELSEWHERE)
        if not self.study.anywhere:
            _same(f"{self.out} was measured with", self.about["machine"], provenance.machine(), ELSEWHERE)

    def path(self, stage: str) -> Path:
        """Where a stage's result is."""
        return self.out / "stages" / f"{quote(stage, safe='')}.json"

    def stored(self, stage: str) -> dict[str, Any] | None:
        """A stage's file; None where it was not run, refused where it comes from another machine than the rest must."""
        path = self.path(stage)
        if not path.exists():
            return None
        found: dict[str, Any] = read_json(path, "result of a stage")
        if not self.study.anywhere:
            advice = f"Measure it here: --again {shlex.quote(stage)}."
            _same(f"{path} was measured with", found["machine"], self.about["machine"], advice)
        return found

    # Running

    def run(self) -> bool:
        """Runs the stages asked for that are not done; whether all of them are done now."""
        again = self.options.again or []
        asked = [*(self.options.stage or ()), *again] or list(self.stages)
        failed = []
        for name, stage in self.stages.items():
            if name not in asked:
                continue
            try:
                if name in again or self.stored(name) is None:
                    self._run(name, stage)
                else:
                    self.say(f"== {name}: done before")
            except (HwbenchError, ModuleNotFoundError) as error:
                failed.append(name)
                self.say(f"studies.{self.study.name}: stage {name} failed: {' '.join(str(error).split())}")
        return not failed

    def _run(self, name: str, stage: Callable[[Run], Any]) -> None:
        self.say(f"== {name}")
        started = time.monotonic()
        result = stage(self)
        facts = {
            "stage": name,
            "machine": provenance.machine(),
            "commit": provenance.commit(),
            "finished": datetime.now(UTC).isoformat(),
        }
        write_json(self.path(name), {**facts, "seconds": time.monotonic() - started, "result": result})

    def render(self) -> str:
        """Writes the report from what is stored, and returns it."""
        there = sorted(unquote(path.stem) for path in (self.out / "stages").glob("*.json"))
        stored = {name: self.stored(name) for name in dict.fromkeys([*self.stages, *there])}  # options may choose stages
        results = {name: found["result"] for name, found in stored.items() if found is not None}
        about = self.about
        where, at = about["machine"], f", commit {about['commit']}" if about["commit"] else ""
        lines = [
            f"# {self.study.title}", "",
            f"`{about['command']}` on {where['device']} ({where['cpu']}), {about['date']}, hwbench {where['hwbench']}{at}.", "",
        ]  # fmt: skip
        if others := sorted({found["machine"]["device"] for found in stored.values() if found} - {where["device"]}):
            lines += [f"Some stages ran on {', '.join(others)}.", ""]
        lines += [TRIAL, ""] if about["options"]["tiny"] else []
        lines += [f"Not run: {', '.join(lacking)}.", ""] if (lacking := [n for n in stored if n not in results]) else []
        text = "\n".join([*lines, self.study.report(results, about["options"]).strip(), ""])
        atomic_write(self.out / f"{self.study.name}.md", text)
        return text


def _same(what: str, stored: Mapping[str, Any], now: Mapping[str, Any], advice: str) -> None:
    for key in [*stored, *(key for key in now if key not in stored)]:
        if stored.get(key) != now.get(key):
            raise EnvironmentMismatch(f"{what} {key} {stored.get(key)}, and now it is {now.get(key)}. {advice}")
