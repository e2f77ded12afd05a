"""Accuracies of architectures: cheap proxies score whole batches in numpy, dear ones each architecture by itself.

A proxy that says `expensive = True` may be scored in several processes, or through anyone's own executor
(`concurrent.futures`), such as a cluster's. Only names and bytes cross the border, answers keep their order, and each
architecture is scored alone however many workers there are: so their number changes no result. An architecture that
ends its process (core/process_pool.py) counts as invalid (NaN). What an executor of one's own loses is scored once more here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import registry
from hwbench.core.process_pool import WorkerLost, Workers

if TYPE_CHECKING:
    from hwbench.space.base import Population


def score(proxy: str, space: str, genes: bytes) -> float:
    """One architecture, in whatever process this runs."""
    return float(_compiled(proxy, space)(np.frombuffer(genes, np.uint8)[:, None])[0])


@lru_cache(maxsize=None)
def _compiled(proxy: str, space: str) -> Any:
    return registry.get("proxy", proxy).compile(registry.get("space", space))


class Scorer:
    """The scores of a proxy over a space; a context that ends the processes it started."""

    def __init__(self, proxy: str, space: str, workers: int = 1, executor: Executor | None = None) -> None:
        part = registry.get("proxy", proxy)
        self.expensive = bool(getattr(part, "expensive", False))
        self._names, self._here = (proxy, space), part.compile(registry.get("space", space))
        self._alone, self._executor, self._workers = executor is None and workers == 1, executor, workers
        self._processes: Workers | None = None
        if self.expensive and workers > 1 and executor is None:
            registry.require_registered("proxy", proxy)
            registry.require_registered("space", space)

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._processes is not None:
            self._processes.shutdown(cancel_futures=True)

    def __call__(self, population: Population) -> np.ndarray:
        """One number per architecture."""
        if not self.expensive:
            return np.asarray(self._here(population), float)
        columns = [np.ascontiguousarray(column) for column in population.T]
        if self._alone:
            return np.array([float(self._here(column[:, None])[0]) for column in columns])
        items = [column.tobytes() for column in columns]
        scores = self._in_processes(items) if self._executor is None else self._through(self._executor, items)
        for item, value in zip(items, scores, strict=True):
            if value is None:
                text = f"Scoring {item.hex()} of {self._names[1]} ended its process, and again; it counts as invalid."
                warnings.warn(text, RuntimeWarning, stacklevel=2)
        return np.array([np.nan if value is None else value for value in scores])

    def _through(self, executor: Executor, items: Sequence[bytes]) -> list[float | None]:
        """By the executor given; what it loses, here."""
        futures: list[Future[float]] = []
        for item in items:
            try:
                futures.append(executor.submit(score, *self._names, item))
            except BrokenExecutor as error:
                futures.append(Future())
                futures[-1].set_exception(error)
        scores: dict[bytes, float | None] = {}
        for item, future in zip(items, futures, strict=True):
            try:
                scores[item] = future.result()
            except BrokenExecutor:
                self._executor = None  # it takes no more work
            except CancelledError:
                pass
        lost = [item for item in items if item not in scores]
        if self._executor is None:
            warnings.warn("The executor given broke; processes of this machine take its place.", RuntimeWarning, stacklevel=3)
        scores.update(zip(lost, self._in_processes(lost), strict=True))
        return [scores[item] for item in items]

    def _in_processes(self, items: Sequence[bytes]) -> list[float | None]:
        """None where the process died at every try."""
        if self._processes is None:
            self._processes = Workers(self._workers)
        scores: list[float | None] = []
        for future in [self._processes.submit(score, *self._names, item) for item in items]:
            try:
                scores.append(future.result())
            except WorkerLost:
                scores.append(None)
        return scores
