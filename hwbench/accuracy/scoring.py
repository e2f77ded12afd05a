"""What tells accuracies to a search: a proxy (scorer.py), a function of the user's (function_scorer.py) or a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hwbench.accuracy.block_shares import BlockShares
from hwbench.core.genes import Genes
from hwbench.space.base import Population
from hwbench.space.compiled import CompiledSum

Done = Callable[[int], None]
"""Told how many of a batch have their score."""


FAILURES_IN_A_ROW = 20
"""So many mean that nothing works at all: where half of a space fails, that happens once in a million."""


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
    blocks: BlockShares | None
    """What every block has of the accuracies told, where that is known."""
    compiled: CompiledSum | None
    """The accuracy as a sum over ops, where it is one."""

    def __call__(self, population: Population, done: Done = nobody) -> Scores:
        """The accuracy of every architecture."""

    def gives_up(self, failures: int, population: Population) -> bool:
        """Whether so many architectures without accuracy in a row, the last of them these, mean that nothing works at all."""

    def notes(self) -> list[str]:
        """What to know about the accuracies told so far."""
