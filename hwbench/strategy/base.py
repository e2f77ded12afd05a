"""What a search strategy is: it asks for architectures and is told their scores.

Budget, log, seed and resume live outside (searcher.py). A strategy draws only from the generator it is given,
so the same seed gives the same search; a resumed search replays the log through `ask` and `tell`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hwbench.objective.base import Score
from hwbench.space import base as spaces
from hwbench.space.base import Population, Space


class Strategy(Protocol):
    """The contract of a strategy; constructed with (space, rng)."""

    name: str

    def ask(self, n: int) -> Population:
        """At most n architectures not asked for before; none when it finds no new one."""

    def tell(self, population: Population, score: Score) -> None:
        """The scores of what was asked, in the same order."""


class Seen:
    """Remembers architectures, so that none is paid for twice."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def new(self, population: Population) -> Population:
        """The architectures not seen before, each once, and remembers them."""
        keep = []
        for i, key in enumerate(spaces.keys(population)):
            if key not in self._keys:
                self._keys.add(key)
                keep.append(i)
        return population[:, keep]


def sample_new(space: Space, n: int, rng: np.random.Generator, seen: Seen) -> Population:
    """Up to n random architectures not seen before; gives up after some 2,000 draws without enough new ones."""
    found = [seen.new(spaces.sample(space, n, rng))]
    tries = 20 + 2000 // n
    while sum(f.shape[1] for f in found) < n and tries:
        found.append(seen.new(spaces.sample(space, n - sum(f.shape[1] for f in found), rng)))
        tries -= 1
    return np.concatenate(found, axis=1)
