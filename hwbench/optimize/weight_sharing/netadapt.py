"""NetAdapt (Yang et al. 2018): an encoder cut step by step, by a measured table, until it keeps its budget.

In every iteration the cost must fall by a step. One proposal per layer and kind of width narrows that one alone, as little as
the step needs; each is trained for some steps from the weights that are left, the most accurate on dev is kept, and the next
step is a little smaller. Units go in the order of their importance, as everywhere here. What comes out is one network, which
then learns alone; there is no space, and nothing is searched.

    short = ShortTraining(teacher, task, dev, steps=20)
    cuts = netadapt(grid, cost, budget, full, short)        short.net is what is left

Killed, it goes on after the last cut, and ends where it would have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hwbench.accuracy.supernet.bert.short_training import OneCut
from hwbench.core.errors import UsageError
from hwbench.core.progress import Tick, no_tick
from hwbench.space.base import Population
from hwbench.space.encoder import EncoderSpace, Widths

FIRST, DECAY = 0.1, 0.96
"""Share of the full cost that the first cut takes off, and of each step that the next one is."""


class Trying(Protocol):
    """Tells how good cuts are, and takes one up."""

    cuts: list[OneCut]
    """Made so far."""

    @property
    def widths(self) -> Widths:
        """Of what is left."""

    def accuracy(self, widths: Widths) -> float:
        """Of what is left, cut to these widths."""

    def keep(self, widths: Widths, cut: OneCut) -> None:
        """This proposal is what is left."""


def netadapt(
    grid: EncoderSpace,
    cost: Callable[[Population], np.ndarray],
    budget: float,
    full: np.ndarray,
    trying: Trying,
    first: float = FIRST,
    decay: float = DECAY,
    tick: Tick = no_tick,
) -> list[OneCut]:
    """Cuts until the budget is kept.

    Args:
        grid: All widths there are.
        cost: Of a population of the grid: measured, or multiply-accumulates.
        budget: The most that what is left may cost.
        full: The architecture to begin with.
        trying: Trains and judges; what it has kept is gone on from.
        first: Share of the full cost that the first iteration takes off.
        decay: Of the steps.
        tick: Progress.

    Raises:
        UsageError: the smallest architecture costs more.
    """
    least = np.zeros_like(full)
    least[0] = full[0]  # the depth stays
    whole, smallest = (float(cost(column[:, None])[0]) for column in (full, least))
    if smallest > budget:
        raise UsageError(f"No subnet of this encoder costs {budget:.4g}: the smallest costs {smallest:.4g}. Raise the budget.")
    left = grid.column_of(trying.widths)
    while (now := float(cost(left[:, None])[0])) > budget:
        tick(int(100 * (whole - now) / (whole - budget)), 100)
        aim = max(budget, now - first * whole * decay ** len(trying.cuts))
        columns, genes = proposals(grid, cost, left, aim)
        found = [trying.accuracy(grid.widths(column)) for column in columns.T]
        best = max(range(len(found)), key=lambda i: (found[i], -float(cost(columns[:, i : i + 1])[0])))
        left = columns[:, best]
        cut = OneCut(float(cost(left[:, None])[0]), found[best], grid.genes[genes[best]].label, len(found))
        trying.keep(grid.widths(left), cut)
    tick(100, 100)
    return list(trying.cuts)


def proposals(
    grid: EncoderSpace, cost: Callable[[Population], np.ndarray], left: np.ndarray, aim: float
) -> tuple[Population, list[int]]:
    """(what is left with one width narrowed as little as the aim needs, which gene); at its least where none gets there."""
    reached, lowest = {}, {}
    for gene in range(1, len(grid.genes)):
        if not left[gene]:
            continue
        narrower = np.repeat(left[:, None], left[gene], axis=1)
        narrower[gene] = np.arange(left[gene])
        enough = np.flatnonzero(cost(narrower) <= aim)
        if len(enough):
            reached[gene] = narrower[:, enough[-1]]
        lowest[gene] = narrower[:, 0]
    chosen = reached or lowest
    return np.stack(list(chosen.values()), axis=1), list(chosen)
