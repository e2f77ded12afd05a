"""Scores on disk: nothing is measured twice, whichever run, verb or worker asks.

An append-only file per space and measure with its seeds and inputs, in `scores/` of a workspace:

    {"space": "autoformer-tiny", "content": "5f1c...", "measures": "synaptic", "seed": 0, ...}      what the lines are
    {"genes": "0102", "terms": {"diversity": 1.5, "saliency": 2.5}, "blocks": {"layer0.ffn": 0.5}}
    {"genes": "0103", "failed": "its diversity is inf"}

Numbers are written so that the very same bits are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hwbench.core import jsonl
from hwbench.core.files import fingerprint, writing
from hwbench.core.workspace import Workspace
from hwbench.space.base import Space
from hwbench.space.slots import distinct_specs

FOLDER = "scores"


class ScoreJournal:
    """One file.

    Args:
        workspace: Folder it lies in.
        space: What is scored.
        identity: All that the terms of a network depend on.
    """

    def __init__(self, workspace: str | Path, space: Space, identity: Mapping[str, Any]) -> None:
        genes = [[gene.label, [repr(choice) for choice in gene.choices]] for gene in space.genes]
        content = fingerprint([genes, [spec.key for spec in distinct_specs(space)]])
        self._head = {"space": space.name, "content": content, **identity}
        folder = re.sub(r"[^\w.=,@-]", "_", space.name)
        name = f"{identity['measures']}-{fingerprint(self._head)}.jsonl"
        self.path = Workspace.at(workspace).path(FOLDER, folder, name)

    def read(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """(genes as hex, what was kept of them) of every network; of one kept twice, the first counts.

        Raises:
            DataError: a line is no entry.
        """
        seen: set[str] = set()
        for entry in jsonl.read(self.path, "score", _entry):
            if entry is not None and entry[0] not in seen:
                seen.add(entry[0])
                yield entry

    @contextmanager
    def appending(self) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
        """A function that keeps one entry; processes that share the file write whole lines one after the other."""
        from filelock import FileLock

        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"))
        with ExitStack() as stack:
            with lock:
                new = not self.path.exists() or self.path.stat().st_size == 0
                append = stack.enter_context(jsonl.appending(self.path))
                if new:
                    append(self._head)

            def keep(genes: str, entry: Mapping[str, Any]) -> None:
                with lock:
                    append({"genes": genes, **entry})

            yield keep


def _entry(line: Any) -> tuple[str, Mapping[str, Any]] | None:
    """What a line keeps; None for the first, which says what the others are."""
    if "space" in line:
        return None
    if "failed" in line:
        return line["genes"], {"failed": str(line["failed"])}
    return line["genes"], {"terms": dict(line["terms"]), "blocks": dict(line["blocks"])}
