"""Accuracies of a search by a function of the user's own (own_function.py), each measured once.

What was measured goes to an append-only journal in the search's folder as it comes, by the architecture's canonical form. So
nothing is measured twice, whatever is killed and resumed, and other searches can take it over (`reuse`).

    {"space": "autoformer-tiny", "function": "mine.py:evaluate", "content": "5f1c..."}      the first line: what they are
    {"genes": "0102", "accuracy": 71.5}             with "from", the content that measured it, where another search did
    {"genes": "0103", "failed": "mine.py:7: ValueError: bad"}
    {"again": ["0103"]}                             asked again when the search goes on: it stopped because all failed
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.asking import LOST, Asking
from hwbench.accuracy.block_shares import BlockShares
from hwbench.accuracy.own_function import Outcome, OwnFunction, evaluate
from hwbench.accuracy.scoring import FAILURES_IN_A_ROW, Done, Scores, nobody
from hwbench.core import jsonl
from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes
from hwbench.core.progress import keep
from hwbench.space.activity import canonical
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum
from hwbench.space.values import to_values

JOURNAL_NAME = "accuracies.jsonl"


@dataclass
class Measured:
    """A journal, folded."""

    space: str | None = None
    """None where there is no journal yet."""
    content: str | None = None
    """Hash of the function's source."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """Genes as hex -> accuracy, or why there is none."""
    taken: dict[str, str | None] = field(default_factory=dict)
    """Genes -> content of the function that measured them for another search."""

    @classmethod
    def read(cls, path: Path) -> Measured:
        """Of a journal that may be torn or not there.

        Raises:
            DataError: a line is no entry of it.
        """
        found = cls()
        for _ in jsonl.read(path, "measured accuracy", found._take):
            pass
        return found

    def _take(self, entry: Mapping[str, Any]) -> None:
        """One line more."""
        if "space" in entry:
            self.space, self.content = entry["space"], entry["content"]
        elif "again" in entry:
            for key in entry["again"]:
                self.outcomes.pop(key, None)
        else:
            self.outcomes[entry["genes"]] = str(entry["failed"]) if "failed" in entry else float(entry["accuracy"])
            if "from" in entry:
                self.taken[entry["genes"]] = entry["from"]


class FunctionScorer:
    """The accuracies of a space by a user's function; a context that ends the processes it started.

    Args:
        own: The function.
        space: Search space.
        folder: Of the search; its journal lies there.
        workers: Processes.
        executor: Name of another than processes here (core/executor), or anyone's own.
        reuse: Folder of another search in the space: what it measured is taken over, what failed there is tried again.
    """

    expensive = True
    candidates: Genes | None = None
    blocks: BlockShares | None = None
    compiled: CompiledSum | None = None

    def __init__(
        self,
        own: OwnFunction,
        space: Space,
        folder: Path,
        workers: int = 1,
        executor: Executor | str | None = None,
        reuse: Path | None = None,
    ) -> None:
        self._own, self._space, self._path = own, space, folder / JOURNAL_NAME
        self._asking, self._workers = Asking(workers, executor), workers
        if self._asking.elsewhere:
            own.require_known_elsewhere()
        self._theirs = Measured() if reuse is None else _to_take_over(reuse, space)
        self._read: Measured | None = None

    def __enter__(self) -> FunctionScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()

    def __call__(self, population: Population, done: Done = nobody) -> Scores:
        """Asks for what was never measured; every answer is in the journal before the next one is waited for."""
        keys = self._keys(population)
        known = self._measured().outcomes
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        answered = len(keys) - len(missing)
        done(answered)
        if missing:
            with jsonl.appending(self._path) as append:
                for key, outcome in self._ask(missing):
                    append({"genes": key, "failed" if isinstance(outcome, str) else "accuracy": outcome})
                    known[key] = outcome
                    answered += 1
                    done(answered)
        outcomes = [known[key] for key in keys]
        failed = {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, str)}
        return Scores(np.array([np.nan if isinstance(each, str) else each for each in outcomes], float), failed)

    def gives_up(self, failures: int, population: Population) -> bool:
        """After FAILURES_IN_A_ROW; those of these architectures are then forgotten, and tried again when the search goes on."""
        if failures < FAILURES_IN_A_ROW:
            return False
        known = self._measured().outcomes
        again = [key for key in self._keys(population) if isinstance(known.get(key), str)]
        with jsonl.appending(self._path) as append:
            append({"again": again})
        for key in again:
            known.pop(key, None)
        return True

    def notes(self) -> list[str]:
        """How much another content of the function measured, for another search."""
        other = sum(content != self._own.content for content in self._measured().taken.values())
        if not other:
            return []
        return [f"{other} accuracies were taken over from a search whose {self._own.name} had another content"]

    def _keys(self, population: Population) -> list[str]:
        return [np.ascontiguousarray(column).tobytes().hex() for column in canonical(self._space, population).T]

    def _ask(self, keys: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
        """Outcomes as they come; where several were asked at once and their process died, each is asked alone."""
        size = math.ceil(len(keys) / self._workers) if self._own.vectorised else 1
        groups = [keys[at : at + size] for at in range(0, len(keys), size)]
        lost: list[str] = []
        for at, outcomes in self._answers(groups):
            if outcomes is None and len(groups[at]) > 1:
                lost += groups[at]
            else:
                yield from zip(groups[at], outcomes or [LOST], strict=True)
        for at, outcomes in self._answers([[key] for key in lost]):
            yield lost[at], outcomes[0] if outcomes else LOST

    def _answers(self, groups: Sequence[Sequence[str]]) -> Iterator[tuple[int, list[Outcome] | None]]:
        def values(key: str) -> dict[str, Any]:
            return to_values(self._space, np.frombuffer(bytes.fromhex(key), np.uint8))

        return self._asking.each(evaluate, [(self._own, [values(key) for key in group]) for group in groups])

    def _measured(self) -> Measured:
        """The journal, begun if need be, with what another search measured written into it."""
        if self._read is None:
            found = Measured.read(self._path)
            with jsonl.appending(self._path) as append:
                if found.space is None:
                    append({"space": self._space.name, "function": self._own.name, "content": self._own.content})
                for key, outcome in self._theirs.outcomes.items():
                    if key not in found.outcomes and not isinstance(outcome, str):
                        found.outcomes[key] = outcome
                        found.taken[key] = self._theirs.taken.get(key, self._theirs.content)
                        append({"genes": key, "accuracy": outcome, "from": found.taken[key]})
            self._read = found
            keep("accuracies", self._path, lambda: len(found.outcomes))
        return self._read


def _to_take_over(folder: Path, space: Space) -> Measured:
    """What another search measured.

    Raises:
        UsageError: it measured nothing, or in another space.
    """
    path = folder / JOURNAL_NAME
    theirs = Measured.read(path)
    if theirs.space is None:
        raise UsageError(
            f"There are no measured accuracies at {path}; --reuse takes the folder of a search with --accuracy FILE.py:NAME."
        )
    if theirs.space != space.name:
        raise UsageError(f"{folder} measured accuracies of {theirs.space}, this search is about {space.name}.")
    return theirs
