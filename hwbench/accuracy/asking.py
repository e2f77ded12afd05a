"""Where architectures are scored: in this process, in others (core/executor), or through anyone's own executor.

Only names, values and bytes cross the border, and each item is answered alone however many workers there are: so their number
changes no result. What an executor that breaks leaves unanswered is asked once more in processes of this machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from queue import SimpleQueue
from typing import Any

from hwbench.core.executor import base as executors
from hwbench.core.executor.base import USUAL, WorkerLost

LOST = "its process ended, and again"
"""Why an item has no answer (core/process_pool.py)."""


class Asking:
    """Asks a function about items; `close` ends the processes it started."""

    def __init__(self, workers: int = 1, executor: Executor | str | None = None) -> None:
        usual = executor in (None, USUAL)
        self.alone = usual and workers == 1
        self.elsewhere = not self.alone and (usual or isinstance(executor, str))
        """Whether other processes are asked, which find parts by their names."""
        self._workers = workers
        self._started: list[executors.Executor] = []
        self._executor: Executor | executors.Executor | None = None
        if isinstance(executor, str) and not usual:
            self._executor = self._start(executor)
        elif not isinstance(executor, str):
            self._executor = executor
        self._processes: executors.Executor | None = None

    def close(self) -> None:
        """Ends the processes started here."""
        for each in self._started:
            each.shutdown(cancel_futures=True)

    def _start(self, name: str) -> executors.Executor:
        self._started.append(executors.make_executor(name, self._workers))
        return self._started[-1]

    def each(self, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """(index, answer) of every item, as answers come; None for one whose process died at every try."""
        if self.alone:
            for at, item in enumerate(items):
                yield at, function(*item)
            return
        left = set(range(len(items)))
        if self._executor is not None:
            for at, answer in self._through(self._executor, function, items):
                left.remove(at)
                yield at, answer
        if left:
            if self._processes is None:
                self._processes = self._start(USUAL)
            futures = {self._processes.submit(function, *items[at]): at for at in sorted(left)}
            for future in _as_they_end(futures):
                try:
                    answer = future.result()
                except WorkerLost:
                    answer = None
                yield futures[future], answer

    def _through(
        self, executor: Executor | executors.Executor, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """By that executor, as far as it answers."""
        futures: dict[Future[Any], int] = {}
        broken = False
        try:
            for at, item in enumerate(items):
                futures[executor.submit(function, *item)] = at
        except BrokenExecutor:
            broken = True
        for future in _as_they_end(futures):
            try:
                answer = future.result()
            except WorkerLost:  # as processes of this machine would say
                yield futures[future], None
            except BrokenExecutor:
                broken = True
            except CancelledError:
                pass
            else:
                yield futures[future], answer
        if broken:
            self._executor = None  # it takes no more work
            warnings.warn("The executor broke; processes of this machine take its place.", RuntimeWarning, stacklevel=4)


def _as_they_end(futures: dict[Future[Any], int]) -> Iterator[Future[Any]]:
    """Futures as they end; those that nobody waits for any more are cancelled.

    `concurrent.futures.as_completed` would wait for ever for one that was cancelled without its executor's knowledge.
    """
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    for future in futures:
        future.add_done_callback(ended.put)
    try:
        for _ in futures:
            yield ended.get()
    finally:
        for future in futures:
            future.cancel()
