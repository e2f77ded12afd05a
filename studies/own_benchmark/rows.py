"""Rows of a stage, one line each, worked on by as many processes as are started: each takes what no other has.

OUT/rows/STAGE.jsonl       {"row": ID, "of": what it was made with, "machine": ..., "torch": ..., what was found}
OUT/locks/                 who works on what; a process that is killed loses its lock with its life

The files are committed as they grow, and gone on with anywhere: rows are accuracies, no times, so those of several machines may
stand side by side, each with its machine. What may not is rows made with other weights or by another recipe (`of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hwbench.core import jsonl
from hwbench.core.errors import DataError, EnvironmentMismatch
from hwbench.core.progress import Tick
from hwbench.device import files
from studies.harness import ELSEWHERE, Run

WAIT = 5.0
"""Seconds between two looks at what another process works on."""
Make = Callable[[str], dict[str, Any]]


def stored(run: Run, stage: str, of: str | None = None) -> dict[str, dict[str, Any]]:
    """ID -> row, of all that are there, in the order they came.

    Raises:
        EnvironmentMismatch: a row was made with something else than `of`.
        DataError: a row is there twice, or a line is none.
    """
    path = file(run, stage)
    found = list(jsonl.read(path, "row of a stage", lambda row: (row["row"], row)))
    for name, row in found:
        if of is not None and row["of"] != of:
            raise EnvironmentMismatch(f"{path}: row {name} was made with {row['of']}, and now it is {of}. {ELSEWHERE}")
    twice = [name for name, n in Counter(name for name, _ in found).items() if n > 1]
    if twice:
        raise DataError(f"{path} holds row {twice[0]} twice; delete one of its lines.")
    return dict(found)


def file(run: Run, stage: str) -> Path:
    """Where a stage's rows are."""
    return run.out / "rows" / f"{stage}.jsonl"


def each(run: Run, stage: str, of: str, items: Sequence[str], make: Make) -> dict[str, dict[str, Any]]:
    """ID -> row of every item, in their order; those that are not stored are made, by this process or another one."""
    known, patience = stored(run, stage, of), 0.0
    with run.progress(stage) as tick:
        while waiting := [item for item in items if item not in known]:
            for item in waiting:
                _take(run, stage, of, item, make, patience, tick, len(items))
            known, patience = stored(run, stage, of), WAIT
    return {item: known[item] for item in items}


def _take(run: Run, stage: str, of: str, item: str, make: Make, patience: float, tick: Tick, total: int) -> None:
    """Makes an item's row, unless it is there by now or another process is working on it."""
    lock = _lock(run, f"{stage}-{item}", patience)
    try:
        with lock:
            if item not in stored(run, stage, of):
                known = {"row": item, "of": of, "machine": files.local_name(), "torch": version("torch"), **make(item)}
                with _lock(run, stage), jsonl.appending(file(run, stage)) as append:
                    append(known)
                tick(len(stored(run, stage)), total)
            Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout:
        return


def _lock(run: Run, name: str, patience: float = -1.0) -> FileLock:
    """Of one row, or of a stage's file."""
    path = run.out / "locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path, timeout=patience)
