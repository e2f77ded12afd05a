"""Processes that die alone: an executor (`concurrent.futures`) in which a lost process costs its item, nothing else.

Every process has one item at a time. When it dies, the item is tried once more in a fresh one; who asked for it is told
when that dies too. Processes end with the one that started them, even when that is killed. What was loaded there from files of
code (core/registry.py) is loaded in them, too.

They are started afresh, not forked (threads may run here), so a script that uses them needs the usual
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.executor.base import WorkerLost

T = TypeVar("T")
TRIES = 2
"""Processes an item may end."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Read by BLAS libraries and torch when they are loaded."""


class Workers(Executor):
    """So many processes of this machine.

    Args:
        workers: Processes.
        threads: Threads of BLAS and torch in each; None leaves them as they are here.
    """

    def __init__(self, workers: int, threads: int | None = None) -> None:
        self._per_process = threads
        self._threads = ThreadPoolExecutor(workers)
        """Each waits for a process of its own."""
        self._mine = threading.local()
        self._processes: list[ProcessPoolExecutor] = []
        self._busy: set[int] = set()
        """Ids of processes that have an item now."""
        self._starting = threading.Lock()
        self._ending = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """The future of one item; it raises WorkerLost where no process survived it."""
        return self._threads.submit(self._one, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes; items that run now are waited for, unless futures are cancelled: nobody would look at them."""
        self._ending = cancel_futures
        if cancel_futures:
            for child in multiprocessing.active_children():
                if child.pid in self._busy:
                    child.kill()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for process in self._processes:
            process.shutdown(wait)

    def _one(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        for _ in range(TRIES):
            process = self._process()
            if self._ending:
                break
            self._busy.add(self._mine.pid)
            try:
                return process.submit(fn, *args, **kwargs).result()
            except BrokenExecutor:
                self._mine.process = None
            finally:
                self._busy.discard(self._mine.pid)
        raise WorkerLost("its process died")

    def _process(self) -> ProcessPoolExecutor:
        """The process of the thread that asks."""
        process: ProcessPoolExecutor | None = getattr(self._mine, "process", None)
        if process is None:
            process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start, (registry.from_files(),))
            with self._starting, _threads(self._per_process), unheard_ctrl_c():
                try:
                    self._mine.pid = process.submit(os.getpid).result()  # its environment is that of the moment it starts
                except BrokenExecutor:
                    raise UsageError(
                        'A process could not be started: a script that uses workers needs `if __name__ == "__main__":` around '
                        "what it runs."
                    ) from None
            self._mine.process = process
            self._processes.append(process)
        return process


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """For processes that start now."""
    before = {name: os.environ.get(name) for name in THREADS}
    if count is not None:
        os.environ.update(dict.fromkeys(THREADS, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start(parts: Sequence[tuple[str, str, str]]) -> None:
    ignore_ctrl_c()
    end_with_parent()
    registry.load_again(parts)


@contextmanager
def unheard_ctrl_c() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal, and the first one answers it. A process that starts within this keeps it
    waiting until it ignores it: what it imports before takes seconds, and would end in a traceback."""
    resource_tracker.ensure_running()  # starting it would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_ctrl_c() -> None:
    """In a process that was started so, first of all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent() -> None:
    """Makes a process end when the one that started it does, even by SIGKILL: nobody would ever give it work again."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
