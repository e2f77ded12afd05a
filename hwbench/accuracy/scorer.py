"""Accuracies by a proxy: cheap ones score whole batches in numpy, dear ones each architecture by itself.

A proxy that says `expensive = True` may be scored in several processes, or through anyone's own executor
(`concurrent.futures`), such as a cluster's (asking.py). An architecture that ends its process counts as invalid (NaN).

Accuracies of the user's own are own_function.py's and known_table.py's; a search asks all three in the same way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from hwbench.accuracy.asking import LOST, Asking
from hwbench.core import registry
from hwbench.core.genes import Genes
from hwbench.space.base import Population

Done = Callable[[int], None]
"""Told how many of a batch have their score."""


def nobody(done: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Scores:
    """One number per architecture, NaN where there is none."""

    values: np.ndarray
    failed: Mapping[int, str] = field(default_factory=dict)
    """Index of an architecture without a number -> why."""


class Scoring(Protocol):
    """Whatever tells accuracies to a search."""

    expensive: bool
    """Whether a score costs more than a table look-up."""
    candidates: Genes | None
    """All architectures that have an accuracy, where they can be listed."""

    def __call__(self, population: Population, done: Done = nobody) -> Scores:
        """The accuracy of every architecture."""

    def gives_up(self, failures: int, population: Population) -> bool:
        """Whether so many architectures without accuracy in a row, the last of them these, mean that nothing works at all."""

    def notes(self) -> list[str]:
        """What to know about the accuracies told so far."""


def score(proxy: str, space: str, genes: bytes) -> float:
    """One architecture, in whatever process this runs."""
    return float(_compiled(proxy, space)(np.frombuffer(genes, np.uint8)[:, None])[0])


@lru_cache(maxsize=None)
def _compiled(proxy: str, space: str) -> Any:
    return registry.get("proxy", proxy).compile(registry.get("space", space))


class Scorer:
    """The scores of a proxy over a space; a context that ends the processes it started."""

    candidates: Genes | None = None

    def __init__(self, proxy: str, space: str, workers: int = 1, executor: Executor | None = None) -> None:
        part = registry.get("proxy", proxy)
        self.expensive = bool(getattr(part, "expensive", False))
        self._names, self._here = (proxy, space), part.compile(registry.get("space", space))
        self._asking = Asking(workers, executor)
        if self.expensive and workers > 1 and executor is None:
            registry.require_registered("proxy", proxy)
            registry.require_registered("space", space)

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()

    def __call__(self, population: Population, done: Done = nobody) -> Scores:
        """One number per architecture."""
        if not self.expensive:
            return Scores(np.asarray(self._here(population), float))
        columns = [np.ascontiguousarray(column) for column in population.T]
        values, failed = np.full(len(columns), np.nan), {}
        for count, (at, value) in enumerate(self._each(columns), 1):
            if value is None:
                failed[at] = LOST
                genes = columns[at].tobytes().hex()
                text = f"Scoring {genes} of {self._names[1]} ended its process, and again; it counts as invalid."
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            else:
                values[at] = value
            done(count)
        return Scores(values, failed)

    def _each(self, columns: list[np.ndarray]) -> Any:
        if self._asking.alone:  # with the part itself: another process would have to find it by its name
            return ((at, float(self._here(column[:, None])[0])) for at, column in enumerate(columns))
        return self._asking.each(score, [(*self._names, column.tobytes()) for column in columns])

    def gives_up(self, failures: int, population: Population) -> bool:
        """Never: a proxy knows which architectures it cannot score."""
        return False

    def notes(self) -> list[str]:
        """Nothing that the proxy's name does not say."""
        return []
