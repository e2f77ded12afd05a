"""Accuracies by a proxy: cheap ones score whole batches in numpy, dear ones each architecture by itself.

A proxy that says `expensive = True` may be scored in several processes, or through anyone's own executor
(`concurrent.futures`), such as a cluster's (asking.py). An architecture that ends its process counts as invalid (NaN).
What proxies that run networks measured is kept in the workspace (network_proxy.py): nothing is scored twice.

Accuracies of the user's own are own_function.py's and known_table.py's; a search asks all three in the same way (scoring.py).
"""

from __future__ import annotations

import warnings
from concurrent.futures import Executor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.asking import LOST, Asking
from hwbench.accuracy.block_shares import BlockShares, block_shares, blocks_of
from hwbench.accuracy.network_proxy import SAMPLE, NetworkProxy, NetworkScores
from hwbench.accuracy.scoring import FAILURES_IN_A_ROW, Done, Scores, nobody
from hwbench.accuracy.shortcut import scores_of
from hwbench.core import registry
from hwbench.core.genes import Genes
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum


def score(proxy: str, space: str, genes: bytes) -> float:
    """One architecture, in whatever process this runs."""
    return float(_compiled(proxy, space)(np.frombuffer(genes, np.uint8)[:, None])[0])


@lru_cache(maxsize=None)
def _compiled(proxy: str, space: str) -> Any:
    return registry.get("proxy", proxy).compile(registry.get("space", space))


def telling_blocks(space: Space) -> list[str]:
    """Registered proxies whose scores of this space have shares of blocks."""
    found = []
    for name in registry.names("proxy") if blocks_of(space) else []:
        part = registry.get("proxy", name)
        if _tells_blocks(part, None if isinstance(part, NetworkProxy) else part.compile(space)):
            found.append(registry.shown("proxy", name))
    return found


def _tells_blocks(part: Any, compiled: Any) -> bool:
    """Whether a proxy's scores have shares of blocks: those that measure networks say so, sums over ops always have."""
    return part.tells_blocks if isinstance(part, NetworkProxy) else isinstance(compiled, CompiledSum)


class Scorer:
    """The scores of a proxy over a space; a context that ends the processes it started.

    Args:
        proxy: Name.
        space: Name.
        workers: Processes, where a score is expensive.
        executor: Name of another than processes here (core/executor), or anyone's own.
        workspace: Where to keep what proxies that run networks measured; None keeps it in memory alone.
    """

    candidates: Genes | None = None

    def __init__(
        self,
        proxy: str,
        space: str,
        workers: int = 1,
        executor: Executor | str | None = None,
        workspace: str | Path | None = None,
    ) -> None:
        part, known = registry.get("proxy", proxy), registry.get("space", space)
        self.expensive = bool(getattr(part, "expensive", False))
        self._asking = Asking(workers, executor) if self.expensive else Asking()
        if self.expensive and self._asking.elsewhere:
            registry.require_registered("proxy", proxy)
            registry.require_registered("space", space)
        self._names = (proxy, space)
        if isinstance(part, NetworkProxy):
            self._here: Any = scores_of(part, known, workspace, self._asking)
        else:
            self._here = part.compile(known)
        self.blocks: BlockShares | None = block_shares(known, self._here.by_node) if _tells_blocks(part, self._here) else None
        self.compiled = self._here if isinstance(self._here, CompiledSum) else None

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()

    def __call__(self, population: Population, done: Done = nobody) -> Scores:
        """One number per architecture."""
        if isinstance(self._here, NetworkScores):
            return self._here.scores(population, done)
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
        """Where a proxy that runs networks has no score for any: it has none for the space. Others know what they refuse."""
        return isinstance(self._here, NetworkScores) and failures >= FAILURES_IN_A_ROW

    def notes(self) -> list[str]:
        """What a score of networks is and is not, and whether a shortcut was believed; others are what their name says."""
        if not isinstance(self._here, NetworkScores):
            return []
        name, proxy = registry.shown("proxy", self._names[0]), self._here.proxy
        ranks = f", among {SAMPLE} networks drawn from {self._names[1]}" if proxy.ranked else ""
        said = (
            f"{name} is the {proxy.unit}{ranks}, of networks as they are initialised ({proxy.start.initialisation}, seed "
            f"{proxy.start.seed}): it ranks networks of this space, and says nothing of how accurate they would be"
        )
        return [said, *self._here.notes()]
