"""Turns on a machine: where several devices that compute on one machine are measured at the same time, one of them works.

A profile of several devices (side_by_side.py) gives each its own process. Those that compute on the same machine (it itself, a
processor it emulates, a name that leads back to it over ssh) share two locks: who measures holds the one, who comes next the
other, so that nobody gets two turns while another waits. The system frees both when their process ends, however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.core.progress import step

if TYPE_CHECKING:
    from filelock import BaseFileLock

Locks = tuple["BaseFileLock", "BaseFileLock"]
"""(who measures, who comes next)."""
_locks: Locks | None = None
"""None where this process has its machine for itself."""


@contextmanager
def shared(path: Path | None) -> Iterator[None]:
    """In here this process takes turns with all that share the same path; None is alone."""
    from filelock import FileLock

    global _locks
    before = _locks
    _locks = None if path is None else (FileLock(path.with_suffix(".now")), FileLock(path.with_suffix(".next")))
    try:
        yield
    finally:
        _locks = before


@contextmanager
def turn() -> Iterator[float]:
    """Holds the machine; gives the seconds that were waited for it."""
    if _locks is None:
        yield 0.0
        return
    with held(_locks) as waited_s:
        yield waited_s


@contextmanager
def held(locks: Locks) -> Iterator[float]:
    """Holds the first of them, in its turn."""
    began = time.monotonic()
    now, following = locks
    with step("waiting for its turn on this machine"), following:
        now.acquire()
    try:
        yield time.monotonic() - began
    finally:
        now.release()
