"""Rows of a stage, one file each, worked on by as many processes as are started: each takes what no other has.

OUT/rows/STAGE/ID.json     one row, whole or not there
OUT/locks/                 who works on what; a process that is killed loses its lock with its life
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hwbench.core.files import read_json, write_json
from studies.harness import Run

WAIT = 5.0
"""Seconds between two looks at what another process works on."""


def stored(run: Run, stage: str) -> dict[str, Any]:
    """ID -> row, of all that are there."""
    return {path.stem: read_json(path, "row of a stage") for path in sorted(folder(run, stage).glob("*.json"))}


def folder(run: Run, stage: str) -> Path:
    """Where a stage's rows are."""
    return run.out / "rows" / stage


def each(run: Run, stage: str, items: Sequence[str], make: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """ID -> row of every item, in their order; those that are not stored are made, by this process or another one."""
    waiting, patience = list(items), 0.0
    with run.progress(stage) as tick:
        while waiting:
            waiting = [item for item in waiting if not _made(run, stage, item, make, patience, tick, len(items))]
            patience = WAIT
    return {item: read_json(folder(run, stage) / f"{item}.json", "row of a stage") for item in items}


def _made(run: Run, stage: str, item: str, make: Callable[[str], dict[str, Any]], patience: float, tick: Any, of: int) -> bool:
    """Whether an item's row is there now; not where another process is working on it."""
    path, lock = folder(run, stage) / f"{item}.json", run.out / "locks" / f"{stage}-{item}.lock"
    if path.exists():
        return True
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=patience):
            if not path.exists():
                write_json(path, make(item))
            lock.unlink(missing_ok=True)
    except Timeout:
        return False
    tick(len(list(path.parent.glob("*.json"))), of)
    return True
