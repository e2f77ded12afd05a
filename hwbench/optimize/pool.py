"""A pool: the only architectures that can be chosen, such as the rows of a benchmark table that holds a sample of its space.

Whatever a strategy comes to think of becomes the member nearest to it, the one with the fewest genes that differ; of several
one that depends on the architecture alone, so that the same question has the same answer. What was made from members
(mutation, crossover) becomes another member than these: in a sparse pool the nearest would nearly always be the parent again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.core.genes import Genes, keys

CHUNK = 1_000_000
"""Genes compared at a time."""
NEAR = 10
"""Members that count as the neighbours of an architecture."""
MIXED = np.uint64(0x9E3779B97F4A7C15)
"""Times this, whole numbers that are alike become numbers that are not (Knuth's multiplicative hashing)."""


class Pool:
    """Members, each once.

    Args:
        members: uint8[n, genes], canonical.
        canonical: The form in which an architecture is compared with them.
    """

    def __init__(self, members: Genes, canonical: Callable[[Genes], Genes] | None = None) -> None:
        if not len(members) or len(set(keys(members))) < len(members):
            raise UsageError(f"A pool needs architectures, each once; got {len(members)}, {len(set(keys(members)))} different.")
        self.members = np.ascontiguousarray(members)
        self._form = canonical
        drawn = np.random.default_rng(0).integers(0, 2**63, len(members) + members.shape[1], dtype=np.uint64)
        self._mine, self._theirs = drawn[: len(members)], drawn[len(members) :] | 1

    def __len__(self) -> int:
        return len(self.members)

    def nearest(self, genes: Genes, *parents: Genes) -> Genes:
        """The nearest member of each architecture, other than its parent (the same row of each of `parents`)."""
        apart = self._apart(genes)
        for each in parents:
            apart[self._apart(each) < 1] = np.inf
        return np.asarray(self.members[apart.argmin(axis=1)])

    def around(self, genes: Genes) -> Genes:
        """The NEAR members nearest to any of these, each once, none of these themselves."""
        apart = self._apart(genes)
        own = apart < 1
        close = np.argsort(np.where(own, np.inf, apart), axis=1)[:, :NEAR]
        chosen = np.zeros(len(self), bool)
        chosen[close] = True
        return np.asarray(self.members[chosen & ~own.any(axis=0)])

    def _apart(self, genes: Genes) -> np.ndarray:
        """float[n, members]: how many genes differ, and less than 1 that decides between equals."""
        if self._form is not None:
            genes = self._form(genes)
        apart = np.empty((len(genes), len(self)))
        step = max(CHUNK // self.members.size, 1)
        for at in range(0, len(genes), step):
            part = genes[at : at + step]
            apart[at : at + step] = (part[:, None, :] != self.members[None]).sum(axis=2)
        number = genes.astype(np.uint64) @ self._theirs  # of each architecture; whole numbers, so the same on every machine
        found: np.ndarray = apart + ((number[:, None] ^ self._mine) * MIXED >> 11) / 2.0**53
        return found
